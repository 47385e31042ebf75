"""What flags of `mmcluspro train` and `mmcluspro test` do to a run."""
import json

import pytest
import torch
from mmengine import load
from mmengine.config import ConfigDict

from mmcluspro.cli import test as test_command
from mmcluspro.cli import train
from mmcluspro.engine.optim import use_mixed_precision

SPREAD = str(list(range(0, 1020, 60))).replace(' ', '')


def test_what_does_not_exist_is_no_config(tmp_path):
    with pytest.raises(FileNotFoundError, match='photos.* Give a folder of images, a table '
                       r'\(\.csv, \.tsv\), or a config'):
        train.main([str(tmp_path / 'photos')])


@pytest.mark.parametrize('flag', ['--weights', '--arch', '--words'])
def test_flags_for_pictures_do_not_go_with_a_config(flag):
    with pytest.raises(ValueError, match=r'--weights, --arch and --words are for pictures only; in '
                       r'a config, set clip=dict\(arch'):
        train.main(['cluspro_shapes.py', flag, 'x'])


def test_auto_scale_lr_needs_the_batch_size_of_the_rate(tmp_path):
    with pytest.raises(ValueError, match=r'auto_scale_lr=dict\(base_batch_size'):
        train.main(['cluspro_shapes.py', '--auto-scale-lr', '--work-dir', str(tmp_path),
                    '--cfg-options', 'auto_scale_lr=None'])


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


def test_out_item_without_a_file_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        test_command.parse_args(['mine.py', '--out-item', 'pred'])
    assert ended.value.code == 2 and '--out-item' in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_with_flags_and_its_tests(tmp_path, monkeypatch):
    """--amp and --no-test of train; --out and --out-item of test."""
    monkeypatch.chdir(tmp_path)
    options = ['--work-dir', 'run', '--cfg-options', f'test_dataloader.dataset.indices={SPREAD}',
               f'val_dataloader.dataset.indices={SPREAD}']
    train.main(['baseline_shapes.py', '--amp', '--no-test', *options, 'train_cfg.max_epochs=1',
                'train_dataloader.dataset.indices=64'])
    best, = (tmp_path / 'run').glob('best_*.pth')
    assert not (tmp_path / 'run' / 'test_metrics.json').exists()
    log = next((tmp_path / 'run').rglob('*.log')).read_text()
    assert "type='mmcluspro.BFloat16OptimWrapper'" in log

    checkpoint = str(best)
    test_command.main(['baseline_shapes.py', checkpoint, '--out', 'numbers.json', '--out-item',
                       'metrics', *options])
    numbers = load('numbers.json')
    told = json.loads((tmp_path / 'run' / 'test_metrics.json').read_text())
    assert numbers['czsl/auc'] == told['czsl/auc'] > 0
    test_command.main(['baseline_shapes.py', checkpoint, '--out', 'answers.pkl', *options])
    assert len(load('answers.pkl')) == 17
