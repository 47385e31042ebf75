"""The evaluation hook: what is scored, from the weights that are evaluated, and what is kept."""
import csv

import pytest
import torch

from mmcluspro import load
from mmcluspro.engine.hooks import EvaluationHook, LabelsHook, needs_calibration
from mmcluspro.engine.hooks.parts import find_hook
from mmcluspro.evaluation import Chosen, CZSLMetric, Evaluation, head_feasibility
from mmcluspro.utils.safe_load import safe_load

SMALL = {'train_dataloader.dataset.indices': 64, 'train_cfg.max_epochs': 1}


@pytest.fixture(scope='module')
def checkpoint(run, tmp_path_factory):
    """A validated checkpoint of a moment's training."""
    folder = tmp_path_factory.mktemp('short')
    runner = run(folder, **SMALL)
    runner.train()
    return folder / 'epoch_1.pth'


def test_everything_is_read_from_the_averaged_weights(run, tmp_path, monkeypatch):
    """EMAHook swaps the weights in before_val_epoch: feasibility must be computed after it."""
    runner = run(tmp_path, **{
        'model.head.feasibility': 'trained', 'train_cfg.max_epochs': 1,
        'train_dataloader.dataset.indices': 256,
        'custom_hooks': [dict(type='EMAHook', momentum=0.3)]})
    used, seen = [], []
    process = CZSLMetric.process

    def spy(metric, batch, samples):
        if metric.world == 'open' and not metric.results:
            used.append(metric.dataset_meta['evaluation'].rho)
            seen.append(head_feasibility(runner.model.head, runner.val_dataloader.dataset.space))
        return process(metric, batch, samples)

    monkeypatch.setattr(CZSLMetric, 'process', spy)
    runner.train()

    assert len(used) == 1
    torch.testing.assert_close(used[0], seen[0], rtol=0, atol=0)
    after = head_feasibility(runner.model.head, runner.val_dataloader.dataset.space)
    assert (after - seen[0]).abs().max() > 1e-4  # the source weights are back, and differ


def test_each_checkpoint_is_tested_with_its_own_threshold(run, checkpoint, tmp_path):
    paths, numbers = [], []
    for place, (threshold, temperature) in enumerate(((0.3, 0.5), (0.6, 2.0))):
        saved = safe_load(checkpoint)
        saved['meta']['calibration']['open'].update(threshold=threshold, temperature=temperature)
        paths.append(tmp_path / f'{place}.pth')
        torch.save(saved, paths[-1])
    runner = run(tmp_path / 'test', load_from=str(paths[0]))

    for path in paths:
        runner.load_checkpoint(str(path))
        runner._has_loaded = True
        numbers.append(runner.test())

    assert [part['czsl_open/threshold'] for part in numbers] == [0.3, 0.6]
    assert [part['czsl_open/temperature'] for part in numbers] == [0.5, 2.0]
    assert numbers[0]['czsl_open/auc'] != numbers[1]['czsl_open/auc']
    # The config says what it said.
    assert runner.test_evaluator.metrics[1].threshold == 'stored'
    assert runner.cfg.test_evaluator[1].threshold == 'stored'


def test_a_checkpoint_without_calibration_does_not_inherit_that_of_the_last(
        run, checkpoint, tmp_path):
    saved = safe_load(checkpoint)
    del saved['meta']['calibration']
    torch.save(saved, tmp_path / 'early.pth')
    runner = run(tmp_path / 'test', load_from=str(checkpoint))
    runner.load_or_resume()
    assert not needs_calibration(runner)

    runner.load_checkpoint(str(tmp_path / 'early.pth'))

    assert needs_calibration(runner) and not find_hook(runner, EvaluationHook).chosen
    with pytest.raises(ValueError, match='found no stored threshold'):
        runner.test()


def without(runner, kind):
    """The runner of a config whose default_hooks lack a hook."""
    runner._hooks = [hook for hook in runner.hooks if not isinstance(hook, kind)]
    return runner


def test_a_test_reports_what_predict_delivers(run, checkpoint, tmp_path):
    runner = run(tmp_path, load_from=str(checkpoint))
    numbers = runner.test()
    assert isinstance(runner._train_loop, dict)  # its data are not built for a test
    data = runner.test_dataloader.dataset
    labels = [data.get_data_info(i) for i in range(len(data))]
    answers = load(checkpoint, 'cpu').predict([info['img'] for info in labels])
    right = [(data.space.attributes[info['attr_label']], data.space.objects[info['obj_label']])
             == (answer.best.attribute, answer.best.object)
             for info, answer in zip(labels, answers)]
    seen = [bool(data.space.seen[info['pair_label']]) for info in labels]
    for name, side in (('seen', True), ('unseen', False)):
        mine = [hit for hit, flag in zip(right, seen) if flag is side]
        assert numbers[f'predict/{name}'] == pytest.approx(100 * sum(mine) / len(mine))
    mean = sum(answer.best.probability for answer in answers) / len(answers)
    assert numbers['predict/confidence'] == pytest.approx(100 * mean, rel=1e-4)
    assert {f'predict/unseen_prefer_{side}' for side in ('seen', 'unseen')} < set(numbers)
    rows = list(csv.DictReader((tmp_path / 'test_pairs.csv').open()))
    accuracy = [float(row['accuracy']) for row in rows]
    assert accuracy == sorted(accuracy) and sum(int(row['images']) for row in rows) == len(data)
    assert (tmp_path / 'test_classes.png').stat().st_size > 1000


def test_a_missing_hook_is_named(run, checkpoint, tmp_path):
    options = dict(load_from=str(checkpoint))

    with pytest.raises(ValueError, match='no EvaluationHook: add it to default_hooks'):
        needs_calibration(without(run(tmp_path / 'a'), EvaluationHook))
    with pytest.raises(ValueError, match='pairs, got shape .* EvaluationHook'):
        without(run(tmp_path / 'c', **options), EvaluationHook).test()


def test_hooks_run_in_an_order_that_works(run, tmp_path):
    """Candidates after the averaged weights, calibration before the checkpoint is saved."""
    runner = run(tmp_path, custom_hooks=[dict(type='EMAHook')])
    order = [type(hook).__name__ for hook in runner.hooks]
    assert order.index('EMAHook') < order.index('EvaluationHook')
    assert order.index('EvaluationHook') < order.index('SafeCheckpointHook')
    assert order.index('LabelsHook') < order.index('PrototypeHook')


def test_other_labels_are_refused_before_an_evaluation(run, tmp_path):
    model = run(tmp_path).model
    names = list(model.space.attributes)
    other = type(model.space)(['purple', *names[1:]], model.space.objects, model.space.pairs,
                              model.space.seen)
    with pytest.raises(ValueError, match='model.space and the datasets'):
        Evaluation.of(model.head, other)


def test_values_are_saved_with_the_weights_that_they_were_chosen_for(run, tmp_path):
    run(tmp_path, **{**SMALL, 'train_cfg.max_epochs': 4, 'train_cfg.val_interval': 2,
                     'train_cfg.val_begin': 2}).train()
    saved = [safe_load(tmp_path / f'epoch_{epoch}.pth')['meta'].get('calibration')
             for epoch in (1, 2, 3, 4)]
    assert [chosen is not None for chosen in saved] == [False, True, False, True]
    assert saved[1] != saved[3]


def test_what_validation_chose_cannot_be_changed(run, checkpoint, tmp_path):
    runner = run(tmp_path, load_from=str(checkpoint))
    runner.load_or_resume()
    chosen = find_hook(runner, EvaluationHook).chosen
    with pytest.raises(TypeError):
        chosen['open'] = Chosen()
    with pytest.raises(AttributeError):
        chosen['open'].threshold = 0.0
    assert {LabelsHook, EvaluationHook} <= {type(hook) for hook in runner.hooks}
