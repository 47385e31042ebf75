"""Small training runs on Shapes through the real configs."""
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from mmcluspro.engine.launch import build_runner, read_config

sys.path.insert(0, str(Path(__file__).parent))
from pretend_cuda import PretendCuda

ROOT = Path(__file__).resolve().parents[2]

# No dropout and no augmentation, so that the order of samples is all that counts.
STILL = {
    'model.backbone.peft.drop_rate': 0.0,
    'model.neck.dropout': 0.0,
    'model.head.text.prompt.attr_dropout': 0.0,
    'train_dataloader.dataset.pipeline': [
        dict(type='PackInputs', algorithm_keys=['attr_label', 'obj_label', 'pair_label'])],
}


def small_config(work_dir, name='baseline_shapes.py', **options):
    """A config of the repository, cut down to seconds."""
    cfg = read_config(ROOT / 'configs' / name)
    cfg.merge_from_dict({
        'train_cfg.max_epochs': 2, 'train_cfg.val_interval': 1,
        'train_dataloader.dataset.indices': 128,
        'val_dataloader.dataset.indices': list(range(0, 1020, 16)),
        'test_dataloader.dataset.indices': list(range(0, 1020, 16)),
        'default_hooks.logger.interval': 1,
        'default_hooks.checkpoint.max_keep_ckpts': 5,
        'work_dir': str(work_dir),
        'launcher': 'none',
        'log_level': 'WARNING',
        **options,
    })
    for phase in ('train', 'val', 'test'):
        cfg[f'{phase}_dataloader'].collate_fn = dict(type='default_collate')
    return cfg


@pytest.fixture(scope='session')
def run():
    """Builds a runner from :func:`small_config`; the generators start from zero."""

    def start(work_dir, name='baseline_shapes.py', **options):
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        return build_runner(small_config(work_dir, name, **options))

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield start
    torch.set_num_threads(threads)


@pytest.fixture
def cuda(monkeypatch):
    """A pretended GPU, which runners take."""
    monkeypatch.setattr('mmengine.runner.runner.get_device', lambda: 'cuda')
    with PretendCuda() as world:
        yield world
