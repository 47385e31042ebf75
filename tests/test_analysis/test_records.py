"""What identifies a run."""
import json

import pytest

from experiments import Run, Store, fingerprint, resolve

METRICS = {'czsl/auc': 1.0}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / 'a.py'
    path.write_text('model = dict(head=dict(k=1, bank=dict(m=0.9, kind="x")))\n'
                    'train_cfg = dict(max_epochs=3)\ntrain_dataloader = None\n'
                    'work_dir = "here"\nrandomness = dict(seed=0)\n'
                    'default_hooks = dict(logger=dict(type="LoggerHook", interval=1), '
                    'checkpoint=dict(type="CheckpointHook", interval=1))\n')
    return path


def test_options_that_say_what_is_there_do_not_count(config):
    options = ['model.head.k=1', 'model.head.bank.m=0.5', 'train_dataloader.batch_size=8']
    cfg, kept = resolve(config, options)
    assert kept == ('model.head.bank.m=0.5', )
    assert cfg.model.head.bank.m == 0.5 and cfg.train_dataloader is None
    assert Run.make(config, options[:1]).name == 'a_seed0'
    assert Run.make(config, options, seed=3).name == 'a-head.bank.m=0.5_seed3'


def test_different_fields_have_different_names(config):
    options = ('model.head.bank.m=2', 'model.head.m=2', 'model.head.bank.m=[2]',
               'model.head.k=[a,b]', 'train_cfg.dataset.n=8', 'val_cfg.dataset.n=8')
    names = {Run.make(config, [option]).name for option in options}
    assert len(names) == len(options)
    assert all(set(name) <= set('abcdefghijklmnopqrstuvwxyz_.=-0123456789') for name in names)


def test_the_later_of_two_values_counts(config):
    cfg, kept = resolve(config, ['model.head.k=3', 'model.head.k=1'])
    assert cfg.model.head.k == 1 and kept == ()  # as the file has it
    assert resolve(config, ['model.head.k=3', 'model.head.k=4'])[1] == ('model.head.k=4', )


def test_an_option_can_replace_a_part(config):
    cfg, kept = resolve(config, ['model.head.bank._delete_=True', 'model.head.bank.type=pkg.Other'])
    assert cfg.model.head.bank == dict(type='pkg.Other')
    assert len(kept) == 2


@pytest.mark.parametrize('option, section', [
    ('model.head.k=2', 'model'), ('train_cfg.max_epochs=4', 'train_cfg'),
    ('default_hooks.checkpoint.interval=2', 'hooks'), ('work_dir=there', None),
    ('default_hooks.logger.interval=2', None), ('randomness.seed=7', None),
    ('default_hooks.checkpoint.max_keep_ckpts=9', None)])
def test_the_fingerprint_changes_with_what_bears_on_the_result(config, option, section):
    before, after = fingerprint(resolve(config)[0]), fingerprint(resolve(config, [option])[0])
    changed = [key for key in before if before[key] != after[key]]
    assert changed == ([section] if section else [])


def test_hooks_count_by_what_they_are_not_by_where_they_are_listed(config):
    first = fingerprint(resolve(config)[0])
    text = config.read_text()
    config.write_text(f'{text}custom_hooks = [dict(type="mmcluspro.FiniteHook"), None]\n')
    assert fingerprint(resolve(config)[0]) == first
    config.write_text(f'{text}custom_hooks = [dict(type="mmcluspro.PrototypeHook")]\n')
    assert fingerprint(resolve(config)[0]) == first
    config.write_text(f'{text}custom_hooks = [dict(type="mmcluspro.PrototypeHook", n=9)]\n')
    assert fingerprint(resolve(config)[0])['hooks'] != first['hooks']
    config.write_text(f'{text}custom_hooks = [dict(type="EMAHook")]\n')
    listed = fingerprint(resolve(config)[0])
    assert listed['hooks'] != first['hooks']
    config.write_text(f'{text}default_hooks["ema"] = dict(type="EMAHook")\n')
    assert fingerprint(resolve(config)[0]) == listed


@pytest.mark.parametrize('changed', ['weights.pt', 'vectors.bin', 'features/features.json'])
def test_other_files_of_the_model_are_another_result(config, tmp_path, changed):
    (tmp_path / 'features').mkdir()
    names = ('weights.pt', 'vectors.bin', 'features/features.json')
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    config.write_text(
        f"""model = dict(backbone=dict(backbone=dict(pretrained={str(tmp_path / names[0])!r})),
            head=dict(text=dict(path={str(tmp_path / names[1])!r})),
            cache=[{str(tmp_path / 'features')!r}])\ntrain_cfg = None""")
    store = Store(tmp_path / 'runs')
    store.save(Run.make(config), metrics=METRICS)
    assert store.changes(Run.make(config)) == []
    (tmp_path / changed).write_bytes(b'two')
    assert store.changes(Run.make(config)) == ['weights']


@pytest.mark.parametrize('missing', ['weights.pt', 'features'])
def test_a_machine_without_the_files_reads_the_same_records(config, tmp_path, missing):
    (tmp_path / 'features').mkdir()
    (tmp_path / 'features' / 'features.json').write_bytes(b'{}')
    (tmp_path / 'weights.pt').write_bytes(b'one')
    config.write_text(f"""model = dict(pretrained={str(tmp_path / 'weights.pt')!r}, k=1,
                          features={str(tmp_path / 'features')!r})\ntrain_cfg = None""")
    store = Store(tmp_path / 'runs')
    store.save(Run.make(config), metrics=METRICS)
    (tmp_path / missing).rename(tmp_path / 'elsewhere')
    assert store.changes(Run.make(config)) == []
    config.write_text(config.read_text().replace('k=1', 'k=3'))
    assert store.changes(Run.make(config)) == ['model']  # the rest is still compared


def test_a_long_text_in_a_model_is_no_file(config):
    config.write_text(f'model = dict(context={"word " * 100!r})\ntrain_cfg = None')
    assert 'weights' not in Run.make(config).fingerprint


def test_records_are_found_again_by_content_whatever_the_file_is_called(config, tmp_path):
    folder = tmp_path / 'runs'
    folder.mkdir()
    # As older records are: without a fingerprint.
    (folder / 'renamed.json').write_text(json.dumps(dict(
        config='a.py', options=['model.head.k=2'], seed=1, metrics=METRICS)))
    store, run = Store(folder), Run.make(config, ['model.head.k=2'], seed=1)
    assert store.find(run)['metrics'] == METRICS and store.changes(run) == []
    assert store.find(run.with_seed(2)) is None
    store.save(run, metrics={'czsl/auc': 2.0})
    assert [path.name for path in folder.iterdir()] == ['renamed.json']
    assert Store(folder).find(run)['metrics'] == {'czsl/auc': 2.0}


def test_a_missing_config_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match='config .*nothing.py does not exist'):
        Run.make(tmp_path / 'nothing.py')


def test_packed_records_are_the_same_records(config, tmp_path):
    folder, store = tmp_path / 'runs', Store(tmp_path / 'runs')
    for seed in (10, 2):
        for options in ([], ['model.head.k=2']):
            store.save(Run.make(config, options, seed), metrics={'czsl/auc': float(seed)})
    before = Store(folder).records

    assert store.pack() == [folder / 'a.jsonl'] == list(folder.iterdir())

    assert Store(folder).records == before
    lines = [json.loads(line) for line in (folder / 'a.jsonl').read_text().splitlines()]
    assert [(line['options'], line['seed']) for line in lines] == [
        ([], 2), ([], 10), (['model.head.k=2'], 2), (['model.head.k=2'], 10)]
    run = Run.make(config, seed=2)
    store.save(run, metrics={'czsl/auc': 7.0})  # run again: the file of its own counts
    assert Store(folder).find(run)['metrics'] == {'czsl/auc': 7.0}
    assert Store(folder).pack() == [folder / 'a.jsonl']
    assert Store(folder).find(run)['metrics'] == {'czsl/auc': 7.0} and len(before) == 4


@pytest.mark.parametrize('line', ['{"config": "a.py"', '[1]', '{"config": "a.py", "seed": 0}'])
def test_a_damaged_line_is_named(tmp_path, line):
    whole = json.dumps(dict(config='a.py', options=[], seed=0, metrics=METRICS))
    (tmp_path / 'a.jsonl').write_text(f'{whole}\n{line}\n')
    with pytest.raises(ValueError, match=r'a\.jsonl.* is not the record of a run'):
        Store(tmp_path)
