"""What `mmcluspro train` and `mmcluspro test` do around the runner, without training."""
import argparse
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from mmengine import load
from mmengine.config import Config, ConfigDict
from mmengine.evaluator import DumpResults

from mmcluspro.cli import test as test_command
from mmcluspro.cli import train
from mmcluspro.engine.precision import use_mixed_precision


class FakeRunner:
    """Writes down what it is asked to do."""

    def __init__(self, best=None):
        self.calls = []
        self.message_hub = SimpleNamespace(runtime_info={'best_ckpt': best} if best else {})
        self.test_evaluator = SimpleNamespace(metrics=[])
        self.logger = SimpleNamespace(info=lambda text: self.calls.append(text))

    def __getattr__(self, name):
        def call(*args):
            self.calls.append((name, *args))
            return {'czsl/auc': 3.5}
        return call


@pytest.fixture
def config(monkeypatch, tmp_path):
    """`main` gets this config, and stops where training would start."""
    cfg = Config(dict(work_dir=str(tmp_path), launcher='none',
                      optim_wrapper=dict(type='OptimWrapper')))
    monkeypatch.setattr(train, 'load_config', lambda *args: cfg)
    monkeypatch.setattr(train, 'check_fields', lambda cfg: None)
    monkeypatch.setattr(train, 'work_lock', lambda folder: nullcontext())
    monkeypatch.setattr(train, '_train', lambda cfg, args: None)
    return cfg


def test_what_does_not_exist_is_no_config(tmp_path):
    with pytest.raises(FileNotFoundError, match='photos.* Give a folder of images, a table '
                       r'\(\.csv, \.tsv\), or a config'):
        train.main([str(tmp_path / 'photos')])


@pytest.mark.parametrize('flag', ['--weights', '--arch', '--words'])
def test_flags_for_pictures_do_not_go_with_a_config(flag, config):
    with pytest.raises(ValueError, match=r'--weights, --arch and --words are for pictures only; in '
                       r'a config, set clip=dict\(arch'):
        train.main(['mine.py', flag, 'x'])


@pytest.mark.parametrize('stored', [True, False])
def test_features_of_pictures_are_stored_where_the_route_asks_for_it(stored, config, monkeypatch,
                                                                     tmp_path):
    made = []
    monkeypatch.setattr(train, 'own_config', lambda *args: ('own.py', str(tmp_path), stored, None))
    monkeypatch.setattr(train, 'store_features', made.append)
    train.main([str(tmp_path)])
    assert made == (['own.py'] if stored else [])


def test_an_interrupted_storing_says_how_to_go_on(config, monkeypatch, tmp_path):
    def interrupt(config):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, 'own_config', lambda *args: ('own.py', str(tmp_path), True, None))
    monkeypatch.setattr(train, 'store_features', interrupt)
    with pytest.raises(KeyboardInterrupt, match='Run the same command again: the features that '
                       'are stored are kept.'):
        train.main([str(tmp_path)])


def test_auto_scale_lr_needs_the_batch_size_of_the_rate(config):
    with pytest.raises(ValueError, match=r'auto_scale_lr=dict\(base_batch_size'):
        train.main(['mine.py', '--auto-scale-lr'])
    config.auto_scale_lr = dict(base_batch_size=64)
    train.main(['mine.py', '--auto-scale-lr'])
    assert config.auto_scale_lr.enable is True


def test_amp_reaches_the_optimizer_of_the_config(config):
    train.main(['mine.py', '--amp'])
    assert config.optim_wrapper.type == 'mmcluspro.BFloat16OptimWrapper'


@pytest.mark.parametrize('capability, before, after', [
    (None, 'OptimWrapper', dict(type='mmcluspro.BFloat16OptimWrapper')),
    ((8, 0), 'OptimWrapper', dict(type='mmcluspro.BFloat16OptimWrapper')),
    ((7, 5), 'OptimWrapper', dict(type='AmpOptimWrapper', loss_scale='dynamic')),
    ((7, 5), 'AmpOptimWrapper', dict(type='AmpOptimWrapper')),
    ((7, 5), 'mmcluspro.BFloat16OptimWrapper', dict(type='mmcluspro.BFloat16OptimWrapper')),
])
def test_amp_is_bfloat16_unless_the_gpu_is_too_old(capability, before, after, monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, 'get_device_capability', lambda: capability)
    wrapper = ConfigDict(type=before)
    use_mixed_precision(wrapper)
    assert wrapper == after


@pytest.mark.parametrize('ranks, text, kind, words', [
    (1, 'Connection reset by peer', RuntimeError, '^Connection reset by peer$'),
    (2, 'a wrong shape', RuntimeError, '^a wrong shape$'),
    (2, 'Connection reset by peer\nmore', ConnectionError, r'^Rank 0 lost another process of the '
     r'job \(Connection reset by peer\).*--resume continues'),
])
def test_only_a_lost_process_is_said_as_one(ranks, text, kind, words, config, monkeypatch):
    def fail(cfg, args):
        raise RuntimeError(text)

    monkeypatch.setattr(train, '_train', fail)
    monkeypatch.setattr('mmcluspro.engine.ranks.get_world_size', lambda: ranks)
    with pytest.raises(kind, match=words):
        train.main(['mine.py'])


@pytest.mark.parametrize('best, fields, no_test, calls', [
    (None, {}, False, [('train', ), ('test', )]),
    ('best.pth', {}, False, [('train', ), ('load_checkpoint', 'best.pth'), ('test', )]),
    ('best.pth', {}, True, [('train', )]),
    ('best.pth', dict(final_test=False), False, [('train', )]),
    ('best.pth', dict(test_dataloader=None), False, [('train', )]),
])
def test_the_best_checkpoint_is_tested_after_training(best, fields, no_test, calls, monkeypatch):
    runner = FakeRunner(best)
    monkeypatch.setattr(train, 'build_runner', lambda cfg: runner)
    cfg = Config(dict(dict(test_dataloader={}, work_dir='.'), **fields))
    train._train(cfg, argparse.Namespace(
        resume=None, no_test=no_test, standalone=False, epochs=None))
    assert runner.calls == calls


def test_out_item_without_a_file_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        test_command.parse_args(['mine.py', '--out-item', 'pred'])
    assert ended.value.code == 2 and '--out-item' in capsys.readouterr().err


@pytest.mark.parametrize('flags, fp16, pictures', [
    ([], None, None),
    (['--amp'], True, None),
    (['--show-dir', 'here', '--interval', '3'], None, dict(show=False, out_dir='here', interval=3)),
    (['--show', '--wait-time', '1'], None, dict(show=True, out_dir=None, wait_time=1.0)),
])
def test_flags_of_test_reach_the_config(flags, fp16, pictures, monkeypatch):
    cfg = Config(dict(test_cfg=dict(), default_hooks=dict(checkpoint=dict(type='x'))))
    runner = FakeRunner()
    monkeypatch.setattr(test_command, 'load_config', lambda *args, **kwargs: cfg)
    monkeypatch.setattr(test_command, 'build_runner', lambda cfg: runner)
    monkeypatch.setattr(test_command, 'needs_calibration', lambda runner: False)
    test_command.main(['mine.py', 'best.pth', *flags])
    assert cfg.load_from == 'best.pth' and cfg.default_hooks.checkpoint is None
    assert cfg.test_cfg.get('fp16') is fp16
    hook = cfg.default_hooks.get('visualization')
    if pictures is None:
        assert hook is None
    else:
        assert hook.type == 'VisualizationHook' and hook.enable is True
        assert {name: hook[name] for name in pictures} == pictures
    assert runner.calls == [('load_or_resume', ), ('test', )]


@pytest.mark.parametrize('item', ['metrics', None])
def test_the_file_of_test_holds_metrics_or_predictions(item, monkeypatch, tmp_path):
    cfg = Config(dict(test_cfg=dict(), default_hooks=dict()))
    runner, out = FakeRunner(), str(tmp_path / ('numbers.json' if item else 'answers.pkl'))
    monkeypatch.setattr(test_command, 'load_config', lambda *args, **kwargs: cfg)
    monkeypatch.setattr(test_command, 'build_runner', lambda cfg: runner)
    monkeypatch.setattr(test_command, 'needs_calibration', lambda runner: True)
    test_command.main(['mine.py', '--out', out, *(['--out-item', item] if item else [])])
    assert [call for call in runner.calls if isinstance(call, tuple)] == [
        ('load_or_resume', ), ('val', ), ('test', )]
    if item:
        assert load(out) == {'czsl/auc': 3.5} and runner.test_evaluator.metrics == []
    else:
        dump, = runner.test_evaluator.metrics
        assert isinstance(dump, DumpResults) and dump.out_file_path == out
