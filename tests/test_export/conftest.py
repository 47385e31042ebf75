"""Checkpoints on Shapes: one that was trained, and others with random weights, made in a moment."""
from pathlib import Path

import pytest
import torch
from mmengine.registry import DefaultScope
from torch import nn

from mmcluspro.artefact.spec import describe
from mmcluspro.datasets import build_space
from mmcluspro.engine.launch import build_runner, read_config
from mmcluspro.evaluation import head_feasibility
from mmcluspro.registry import MODELS

ROOT = Path(__file__).resolve().parents[2]
KINDS = {
    'lora': ('cluspro_shapes.py', {}),
    'bottleneck': ('baseline_shapes.py', {
        'peft': dict(type='mmcluspro.Bottleneck', width=8)}),
    'batch_norm': ('baseline_shapes.py', {'model.neck.norm': 'BN', 'model.head.fusion': 'logits'}),
    'zero_shot': ('clip_zeroshot_shapes.py', {}),
    'csp': ('csp_shapes.py', {}),
}


def config(name, **options):
    cfg = read_config(ROOT / 'configs' / name)
    peft = options.pop('peft', None)
    cfg.merge_from_dict(options)
    if peft is not None:  # another kind, not other fields of the same kind
        cfg.model.backbone.peft = peft
    return cfg


def write_checkpoint(path, kind='lora', **options):
    """A checkpoint with random weights in the place of trained ones."""
    name, changes = KINDS[kind]
    cfg = config(name, **changes, **options)
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = MODELS.build(cfg.model)
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.05 if 'prompt' in key else 0.2)
    for key, buffer in model.named_buffers():
        if 'running' in key:
            nn.init.uniform_(buffer, 0.5, 1.5)
    space = build_space(cfg.model.space, 'all')
    chosen = dict(bias=0.125, threshold=None, temperature=0.75, seen_bias=0.5)
    middle = float(head_feasibility(model.head, space).median())
    torch.save(dict(
        state_dict=model.state_dict(),
        meta=dict(description=describe(cfg), dataset_meta=dict(space=space.to_dict()),
                  calibration=dict(closed=chosen, open=dict(chosen, threshold=middle)))), path)
    return path


@pytest.fixture(scope='session')
def checkpoints(tmp_path_factory):
    """Checkpoint of a kind, written when it is first asked for."""
    folder = tmp_path_factory.mktemp('checkpoints')

    def get(kind='lora'):
        path = folder / f'{kind}.pth'
        return path if path.exists() else write_checkpoint(path, kind)

    return get


@pytest.fixture(scope='session')
def trained(tmp_path_factory):
    """A checkpoint of a short run of ClusPro, with optimizer, history and prototypes."""
    folder = tmp_path_factory.mktemp('run')
    cfg = config('cluspro_shapes.py', **{
        'train_cfg.max_epochs': 1, 'train_dataloader.dataset.indices': 128,
        'val_dataloader.dataset.indices': list(range(0, 1020, 32)), 'log_level': 'WARNING',
        'work_dir': str(folder), 'launcher': 'none'})
    for phase in ('train', 'val', 'test'):
        cfg[f'{phase}_dataloader'].collate_fn = dict(type='default_collate')
    build_runner(cfg).train()
    return folder / 'epoch_1.pth'
