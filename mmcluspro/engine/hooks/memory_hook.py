"""Estimates at the start of training how much memory it needs."""
import os
from collections.abc import Sequence
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.engine.memory import Estimate, estimate_step
from mmcluspro.registry import HOOKS

from .parts import unwrap


@HOOKS.register_module()
class MemoryHook(Hook):
    """Logs an estimate at the first iteration, and warns if the device is too small.

    The estimate is a dry run (:mod:`mmcluspro.engine.memory`), which computes nothing. Models that
    cannot run dry get none.

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
