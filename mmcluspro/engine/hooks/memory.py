"""How much memory a training step needs, found by a dry run: shapes only, nothing is computed.

The step of a copy of the model runs forward and backward on tensors without data. What is alive at
each moment is counted by storage, so checkpointing, chunks, LoRA and mixed precision are in the
number as they are in the code.
"""
from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mmcluspro.registry import HOOKS

from .parts import unwrap

OVERHEAD = 2_000_000_000  # CUDA context, cuDNN and cuBLAS workspaces, gaps of the allocator


class Estimate(NamedTuple):
    """Bytes of a training process.

    Attributes:
        weights (int): Parameters and buffers.
        step (int): Most of what forward and backward hold at a time, gradients included.
        optimizer (int): Two moments for each trained parameter, as Adam keeps them.
    """
    weights: int
    step: int
    optimizer: int

    @property
    def total(self) -> int:
        """All of it, and :data:`OVERHEAD`."""
        return sum(self) + OVERHEAD


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the storages that calls inside make, while they are alive.

    Args:
        known (Iterable[Tensor]): What is there before and is not counted.

    Attributes:
        now (int): Bytes alive.
        peak (int): Most at a time.
    """

    def __init__(self, known: Any = ()) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.sizes: dict[int, int] = {}
        for tensor in known:
            self._see(tensor, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._see(tensor, tensor.untyped_storage().nbytes())
        return result

    def _see(self, tensor: Tensor, size: int) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.sizes:
            self.sizes[key] = size
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self.sizes.pop(key, 0)


def estimate_step(model: Any, shape: tuple[int, ...], data_samples: list[Any],
                  context: AbstractContextManager | None = None) -> Estimate:
    """Dry run of one training step.

    Args:
        model (CompositionalClassifier): On its device; it does not change.
        shape (tuple[int, ...]): Of the inputs after the preprocessor, (B, 3, H, W).
        data_samples (list[DataSample]): B samples with their labels.
        context (AbstractContextManager, optional): In which the loss runs, for example autocast.
            Defaults to None.

    Returns:
        Estimate: Of this process.
    """
    tensors = [*model.parameters(), *model.buffers()]
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    twin = copy.deepcopy(model, {id(tensor): _without_data(fake, tensor) for tensor in tensors})
    twin.train()
    if hasattr(twin.head.text, 'prepare'):  # lengths and indices need data
        twin.head.text.prepare(twin.head.train_candidates.text_pairs)
    # Collectives would wait for the other ranks, which need not run this.
    with patch('torch.distributed.is_initialized', return_value=False), fake:
        inputs = torch.empty(shape, device=model.head.device)
        known = [*twin.parameters(), *twin.buffers(), inputs]
        with LiveBytes(known) as live, context or nullcontext():
            # Not twin(...): a compiled forward would be that of the model itself.
            losses = type(twin).forward(twin, inputs, data_samples, mode='loss')
            sum(losses.values()).backward()
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return Estimate(_size(tensors), live.peak, 2 * trained)


def _without_data(fake: FakeTensorMode, tensor: Tensor) -> Tensor:
    empty = fake.from_tensor(tensor.detach())
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


def _size(tensors: list[Tensor]) -> int:
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


@HOOKS.register_module()
class MemoryHook(Hook):
    """Logs an estimate at the first iteration, and warns if the device is too small.

    The estimate is a dry run (:func:`estimate_step`) that computes nothing. Models that cannot run
    dry get none.

    Args:
        devices (Sequence[str]): Device types for which to log it. Defaults to ('cuda', ).
    """

    priority = 'LOW'

    def __init__(self, devices: Sequence[str] = ('cuda', )) -> None:
        self.devices = devices
        self.said = False

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Estimates once, on the first rank."""
        if self.said or runner.rank != 0:
            return
        self.said = True
        model = unwrap(runner.model)
        device = next(model.parameters()).device
        if device.type not in self.devices or runner.cfg.get('compile'):
            return
        try:
            need = self._estimate(runner, model, data_batch)
        except Exception as error:  # the model may be the user's own
            runner.logger.debug(f'There is no estimate of the memory: {error}')
            return
        total = need.total / 1e9
        parts = ', '.join(f'{name} {getattr(need, name) / 1e9:.1f}' for name in need._fields)
        runner.logger.info(f'Training needs about {total:.1f} GB of memory ({parts}).')
        size = device_bytes(device) / 1e9
        if total > size:
            runner.logger.warning(
                f'Training needs about {total:.1f} GB, but {device} has {size:.1f} GB. Set '
                'model.backbone.with_cp=True, model.micro_batch=16 or --amp, see "Memory" in '
                'docs/training.md.')

    @staticmethod
    def _estimate(runner: Runner, model: Any, data_batch: dict[str, Any]) -> Estimate:
        images, samples = data_batch['inputs'], data_batch['data_samples']
        shape = (len(images), *images[0].shape)
        return estimate_step(model, shape, samples, runner.optim_wrapper.optim_context(model))


def device_bytes(device: torch.device) -> int:
    """Memory of a device."""
    if device.type == 'cuda':
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
