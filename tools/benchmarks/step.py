"""Counts ATen calls, host syncs and bytes of a training step; no GPU is needed.

Usage: python tools/benchmarks/step.py
"""
import copy
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from mmpretrain.structures import DataSample
from torch.utils._python_dispatch import TorchDispatchMode

from mmcluspro.engine.hooks.memory import LiveBytes
from mmcluspro.engine.launch import read_config
from mmcluspro.registry import MODELS

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
# The host has to read a result, or the size of one.
SYNCS = {
    '_local_scalar_dense', 'item', 'is_nonzero', 'equal', 'nonzero', 'nonzero_numpy', 'argwhere',
    '_unique', '_unique2', 'unique_dim', 'unique_consecutive', 'masked_select', 'bincount', 'histc'}


class Calls(TorchDispatchMode):
    """Counts ATen calls, and those that make the host wait."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.syncs: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.calls[name] += 1
        by_mask = name.startswith(('index', '_index_put')) and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool
            for arg in args if isinstance(arg, (list, tuple)) for index in arg)
        sized = name == 'repeat_interleave' and not (kwargs or {}).get('output_size')
        if name in SYNCS or by_mask or sized:
            self.syncs[name] += 1
        return func(*args, **(kwargs or {}))


class Cost(NamedTuple):
    """Of one step: ATen calls, host syncs, most bytes alive, best CPU seconds."""
    calls: int
    syncs: int
    bytes: int
    seconds: float


def build(config: str, batch: int) -> tuple[Any, torch.Tensor, list[DataSample]]:
    """The model of a config in training, with filled banks, and a batch of noise."""
    torch.manual_seed(0)
    model = MODELS.build(read_config(CONFIGS / config).model).train()
    for bank in model.head.clustered.values():
        owners = torch.arange(bank.num_classes).repeat(8)
        bank.initialise(torch.randn(len(owners), bank.dim), owners)
    space, samples = model.head.space, []
    for i in range(batch):
        sample = DataSample()
        sample.set_field(i % len(space.attributes), 'attr_label')
        sample.set_field(i % len(space.objects), 'obj_label')
        sample.set_field(i % 64, 'pair_label')
        samples.append(sample)
    return model, torch.randn(batch, 3, 48, 48), samples


def step(model: Any, images: torch.Tensor, samples: list[DataSample]) -> None:
    """Forward, backward, and what the hook does after it; no optimizer."""
    sum(model(images, samples, mode='loss').values()).backward()
    model.head.update_prototypes()


def cost(config: str, batch: int = 64, repeats: int = 3) -> Cost:
    """Counts a step of a config, after one that fills the caches."""
    model, images, samples = build(config, batch)
    step(model, images, samples)
    with Calls() as counted:
        step(model, images, samples)
    model.zero_grad()
    with LiveBytes([*model.parameters(), *model.buffers(), images]) as live:
        step(copy.copy(model), images, samples)
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        step(model, images, samples)
        times.append(time.process_time() - begin)
    return Cost(counted.calls.total(), counted.syncs.total(), live.peak, min(times or [0.0]))


def table(batch: int = 64, repeats: int = 3) -> list[Sequence[str]]:
    """Rows: part, ATen calls, host syncs, MB, CPU time against the baseline."""
    base, cluspro = (cost(f'{name}_shapes.py', batch, repeats) for name in ('baseline', 'cluspro'))
    rows = [('three-path baseline', base), ('ClusPro', cluspro)]
    cells = [(f'step of {name}, tiny CLIP, batch {batch}', str(each.calls), str(each.syncs),
              f'{each.bytes / 1e6:.0f}', f'{each.seconds / base.seconds:.2f}×')
             for name, each in rows]
    return [*cells, ('added by prototypes and their losses', str(cluspro.calls - base.calls),
                     str(cluspro.syncs - base.syncs),
                     f'{(cluspro.bytes - base.bytes) / 1e6:.0f}',
                     f'{(cluspro.seconds - base.seconds) / base.seconds:.2f}×')]


if __name__ == '__main__':
    torch.set_num_threads(1)
    for row in table():
        print(' | '.join(row))
