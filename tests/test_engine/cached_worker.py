"""Trains the frozen tiny CLIP for an epoch, from images or from stored features."""
import random
import sys
from pathlib import Path

import numpy as np
import torch

from mmcluspro.engine.launch import build_runner, read_config

ROOT = Path(__file__).resolve().parents[2]
INDICES = 128
IMAGES = dict(type='mmcluspro.CLIPVision', arch='tiny_clip', pretrained='tiny_clip')


def cached_config(name, features, work_dir, from_images=False, batch_size=32, launcher='none'):
    """A config of the frozen-backbone mode, cut down; ``from_images`` takes the backbone back."""
    cfg = read_config(ROOT / 'configs' / name)
    cfg.model.neck.dropout = 0.0
    cfg.model.head.text.prompt.attr_dropout = 0.0
    cfg.model.backbone.features = str(features)
    for phase in ('train', 'val', 'test'):
        loader = cfg[f'{phase}_dataloader']
        loader.dataset.features = str(features)
        loader.dataset.indices = INDICES if phase == 'train' else list(range(0, 1000, 20))
        loader.collate_fn = dict(type='default_collate')
        if from_images:
            del loader.dataset['features']
    if from_images:
        cfg.model.backbone = IMAGES
    cfg.train_dataloader.batch_size = batch_size
    cfg.merge_from_dict({
        'train_cfg.max_epochs': 1, 'default_hooks.logger.interval': 1, 'launcher': launcher,
        'work_dir': str(work_dir), 'log_level': 'WARNING'})
    return cfg


def train(cfg, start):
    """Losses of all iterations, validation, and the weights at the end.

    Building the backbone draws random numbers, so that the rest would start elsewhere without
    it: the first run writes its weights to the file ``start``, the others begin with them.
    """
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    runner = build_runner(cfg)
    model = getattr(runner.model, 'module', runner.model)
    if not Path(start).exists():
        torch.save(model.state_dict(), start)
    model.load_state_dict(torch.load(start))
    runner.train()
    history = runner.message_hub.log_scalars
    return runner, dict(
        loss=history['train/loss'].data[0].tolist(), state=model.state_dict(),
        val={key: float(value.current()) for key, value in history.items()
             if key.startswith('val/czsl')})


if __name__ == '__main__':
    name, features, start, work_dir = sys.argv[1:]
    torch.set_num_threads(1)
    cfg = cached_config(name, features, work_dir, batch_size=16, launcher='pytorch')
    runner, result = train(cfg, start)
    torch.save(result, Path(work_dir) / f'rank{runner.rank}.pt')
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
