"""The model of a page that was started without a checkpoint: the shipped tiny CLIP, untrained."""
import tempfile
from pathlib import Path

import torch
from mmengine.registry import DefaultScope

from mmcluspro.apis import CZSLInferencer
from mmcluspro.datasets import ShapesCZSL
from mmcluspro.description import describe
from mmcluspro.engine.launch import read_config
from mmcluspro.registry import MODELS

CONFIG = 'clip_zeroshot_shapes.py'


def zero_shot_inferencer(device: str | torch.device | None = None) -> CZSLInferencer:
    """Zero-shot CLIP on the pairs of Shapes, without training or loading anything."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'zero_shot.pth'
        write_checkpoint(path)
        return CZSLInferencer(path, device)


def write_checkpoint(path: Path) -> None:
    """Writes the untrained model as a checkpoint."""
    cfg = read_config(CONFIG)
    dataset_meta = dict(space=ShapesCZSL.make_space('train').to_dict(),
                        known_pairs=ShapesCZSL.make_space('all').pairs.tolist())
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        weights = MODELS.build(cfg.model).state_dict()
    meta = dict(description=describe(cfg), dataset_meta=dataset_meta)
    torch.save(dict(state_dict=weights, meta=meta), path)
