"""Samples: checkpoints, published files, and weights of others."""
from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from . import ROOT


def checkpoint_content(config: str = 'cluspro_shapes') -> dict[str, Any]:
    """What training with a config saves, with a small head of weights."""
    return pickle.loads(_pickled_content(config))


@lru_cache(maxsize=8)
def _pickled_content(config: str) -> bytes:
    from mmcluspro.artefact.spec import describe
    from mmcluspro.datasets import ShapesCZSL
    from mmcluspro.engine.launch import read_config
    cfg = read_config(ROOT / 'configs' / f'{config}.py')
    generator = torch.Generator().manual_seed(0)
    state = {f'neck.{name}': torch.randn(16, 16, generator=generator) for name in 'abcd'}
    world = dict(bias=0.2, threshold=None, temperature=0.8, seen_bias=0.6)
    return pickle.dumps(dict(state_dict=state, meta=dict(
        description=describe(cfg), cfg=cfg.pretty_text, epoch=3,
        dataset_meta=ShapesCZSL(phase='train', lazy_init=True).metainfo,
        calibration=dict(closed=world, open=dict(world, threshold=0.4)))))


def make_checkpoint(folder: Path) -> Path:
    torch.save(checkpoint_content(), folder / 'best.pth')
    return folder / 'best.pth'


def read_checkpoint_file(path: Path) -> Any:
    from mmcluspro.artefact.load import read_checkpoint
    file = read_checkpoint(path)
    space = file.space()
    return dict(file.state), file.spec(), space.to_dict(), file.meta.get('calibration')


def make_newest(config: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        torch.save(checkpoint_content(config), folder / 'newest.pth')
        return folder / 'newest.pth'
    return make


def types_of_newest(config: str) -> Callable[[Path, np.random.Generator], Path]:
    def types(folder: Path, generator: np.random.Generator) -> Path:
        content = checkpoint_content(config)
        model = content['meta']['description']['model']
        model['head'] = wrong_types(model['head'], generator)
        torch.save(content, folder / 'types.pth')
        return folder / 'types.pth'
    return types


def make_published(folder: Path) -> Path:
    from mmcluspro.artefact.save import publish
    return publish(make_checkpoint(folder), folder / 'model.pth')


def wrong_types(content: Any, generator: np.random.Generator) -> Any:
    """The content with one value replaced, removed or renamed."""
    strange = [None, 0, -1, 10**30, 3.5, float('nan'), '', 'x' * 3000, b'\xff', [], [[]], {}, True,
               torch.zeros(2), torch.tensor([float('inf')]), ['a', 1], {'type': 'os.system'}]

    def paths(value: Any, prefix: tuple) -> list[tuple]:
        found = [prefix] if prefix else []
        pairs = value.items() if isinstance(value, dict) else (
            enumerate(value[:5]) if isinstance(value, list) else ())
        for key, part in pairs:
            found += paths(part, (*prefix, key))
        return found

    places = paths(content, ())
    *way, last = places[int(generator.integers(len(places)))]
    holder = content
    for key in way:
        holder = holder[key]
    kind = int(generator.integers(4))
    if kind == 0 and isinstance(holder, dict):
        del holder[last]
    elif kind == 1 and isinstance(holder, dict):
        holder[strange[int(generator.integers(6))]] = holder.pop(last)
    else:
        holder[last] = strange[int(generator.integers(len(strange)))]
    return content


def types_of_checkpoint(folder: Path, generator: np.random.Generator) -> Path:
    content = wrong_types(checkpoint_content(), generator)
    if generator.random() < 0.3 and isinstance(content.get('meta'), dict):
        content['meta'].pop('description', None)
    torch.save(content, folder / 'types.pth')
    return folder / 'types.pth'


def small_state() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {f'visual.block.{i}.weight': torch.randn(12, 12, generator=generator)
            for i in range(6)}


def make_safetensors(folder: Path) -> Path:
    from safetensors.torch import save_file
    save_file(small_state(), folder / 'clip.safetensors')
    return folder / 'clip.safetensors'


def make_pickle(folder: Path) -> Path:
    torch.save(dict(state_dict=small_state()), folder / 'clip.pt')
    return folder / 'clip.pt'


def make_torchscript(folder: Path) -> Path:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        torch.jit.trace(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)).half().float(),
                        torch.zeros(1, 8)).save(str(folder / 'script.pt'))
    return folder / 'script.pt'


def read_clip(path: Path) -> Any:
    from mmcluspro.models.clip import read_weights
    return read_weights(path)


def make_dino(folder: Path) -> Path:
    torch.save(dict(teacher={f'backbone.{key}': value for key, value in small_state().items()},
                    epoch=3), folder / 'dino.pth')
    return folder / 'dino.pth'


def read_dino(path: Path) -> Any:
    from mmcluspro.models.backbones.dino import dino_weights
    from mmcluspro.utils.safe_load import load_checkpoint
    return dino_weights(load_checkpoint(path), name=str(path))
