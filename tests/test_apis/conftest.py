"""A checkpoint on Shapes with random learnt weights, made in a moment."""
from pathlib import Path

import pytest
import torch
from mmengine.registry import DefaultScope
from torch import nn

from mmcluspro.artefact.spec import describe
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.engine.launch import read_config
from mmcluspro.registry import MODELS

ROOT = Path(__file__).resolve().parents[2]
CALIBRATION = {
    'closed': dict(bias=0.2, threshold=None, temperature=0.8, seen_bias=0.6),
    'open': dict(bias=0.2, threshold=0.5, temperature=0.9, seen_bias=0.4),
}


def write_checkpoint(path, name='baseline_shapes.py', calibration=CALIBRATION, **options):
    """Writes what training would: weights, description and label space."""
    cfg = read_config(ROOT / 'configs' / name)
    cfg.merge_from_dict(options)
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(cfg.model)
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.02 if 'prompt' in key else 0.1)
    dataset = ShapesCZSL(phase='train', lazy_init=True)
    torch.save({
        'state_dict': model.state_dict(),
        'meta': dict(description=describe(cfg), dataset_meta=dataset.metainfo,
                     calibration=calibration),
    }, path)
    return path, model.eval()


@pytest.fixture(scope='session')
def write():
    """Writes a checkpoint; returns its path and the model."""
    return write_checkpoint


@pytest.fixture(scope='session')
def trained(tmp_path_factory):
    """The checkpoint, and the model that it was written from."""
    return write_checkpoint(tmp_path_factory.mktemp('checkpoint') / 'best.pth')


@pytest.fixture(scope='session')
def inferencer(trained):
    from mmcluspro import load
    return load(trained[0], device='cpu')


@pytest.fixture(scope='session')
def pictures():
    """Twelve test pictures, BGR."""
    dataset = ShapesCZSL(phase='test')
    return [dataset.get_data_info(i)['img'] for i in range(0, 960, 80)]
