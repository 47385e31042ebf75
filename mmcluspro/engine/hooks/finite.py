"""Stops training at the first NaN or infinity, before it reaches a checkpoint."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import all_gather_object, all_reduce, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn

from mmcluspro.errors import listed
from mmcluspro.models.structures import Features
from mmcluspro.registry import HOOKS
from mmcluspro.utils.files import write_bytes
from mmcluspro.utils.safe_load import non_finite_tensors

from .parts import unwrap


def finite_rows(tensor: Tensor) -> Tensor:
    """Marks rows without NaN and infinity, without waiting for the device.

    Args:
        tensor (Tensor): Floating point, shape (N, ...).

    Returns:
        Tensor: bool, shape (N,).
    """
    return tensor.detach().isfinite().flatten(1).all(dim=1)


def finite_each(tensors: Sequence[Tensor]) -> Tensor:
    """Marks tensors without NaN and infinity, with few kernels for any number of them.

    Args:
        tensors (Sequence[Tensor]): On one device.

    Returns:
        Tensor: bool, shape (len(tensors),).
    """
    norms = torch._foreach_norm([tensor.detach() for tensor in tensors], float('inf'))
    return torch.stack(norms).isfinite()


GPU_INTERVAL = 20
REPORT = 'non_finite.txt'


@dataclass
class Step:
    """Record of an iteration: its images, and which of its parts were finite.

    Args:
        number (int): Iteration, from 1.
        epoch (int): From 1.
        images (list[str]): Files of the batch.
        stages (list): In the order of computation: what was looked at, the names of its parts
            (None: the images), and which are finite, bool of shape (parts,).
    """
    number: int
    epoch: int
    images: list[str]
    stages: list[tuple[str, Sequence[str] | None, Tensor]] = field(default_factory=list)


@HOOKS.register_module()
class FiniteHook(Hook):
    """Stops a training whose images, features, losses, weights or prototypes are not finite.

    Every iteration sets flags on the device without waiting for it. The flags are read every
    ``interval`` iterations, at the end of an epoch and before anything is saved. The message names
    the iteration in which the first flag was set, the stage and the images, however late it is
    read. ``non_finite.txt`` in the work folder lists the whole batch. Checkpoints with NaN or
    infinity are neither written nor loaded.

    Args:
        interval (int, optional): Iterations between two reads of the flags. Defaults to None: 1 on
            a CPU, 20 on a GPU, where each read waits for the device.
    """

    # After PrototypeHook, before CheckpointHook.
    priority = 'LOW'

    def __init__(self, interval: int | None = None) -> None:
        if interval is not None and interval < 1:
            raise ValueError(f'FiniteHook.interval must be positive, got {interval}.')
        self.interval = interval
        self._steps: list[Step] = []
        self._stages: list[tuple[str, Sequence[str] | None, Tensor]] = []
        self._trained: dict[str, Tensor] = {}

    def before_train(self, runner: Runner) -> None:
        """Starts checking the inputs and outputs of backbone and neck."""
        model = unwrap(runner.model)
        self._trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._steps, self._stages = [], []
        if self.interval is None:
            self.interval = 1 if next(model.parameters()).device.type == 'cpu' else GPU_INTERVAL
        model.backbone.register_forward_hook(self._look('the features of the backbone',
                                                        'the prepared images'))
        if model.with_neck:
            model.neck.register_forward_hook(self._look('the features of the neck'))

    def _look(self, name: str, input_name: str | None = None) -> Any:
        def hook(module: nn.Module, inputs: tuple, output: Any) -> None:
            if not module.training:
                return
            if input_name and inputs:
                self._add(input_name, inputs[0])
            self._add(name, output)
        return hook

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, Features):
            value = list(value.paths.values())
        parts = [part for part in (value if isinstance(value, (tuple, list)) else [value])
                 if isinstance(part, Tensor) and part.is_floating_point() and part.ndim > 1]
        if parts and len({len(part) for part in parts}) == 1:
            flags = torch.stack([finite_rows(part) for part in parts]).all(dim=0)
            self._stages.append((name, None, flags))

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict | None = None) -> None:
        """Adds losses, weights and prototypes; reads the flags when it is time."""
        step = Step(runner.iter + 1, runner.epoch + 1, batch_images(data_batch), self._stages)
        self._stages = []
        losses = {name: value.detach().reshape(()) for name, value in (outputs or {}).items()
                  if isinstance(value, Tensor) and value.numel() == 1}
        prototypes = {name: buffer for name, buffer in unwrap(runner.model).named_buffers()
                      if name.endswith('.prototypes') and buffer.numel()}
        for what, tensors in (('the loss', losses), ('the trained weights', self._trained),
                              ('the prototypes', prototypes)):
            if tensors:
                step.stages.append((what, list(tensors), finite_each(list(tensors.values()))))
        self._steps.append(step)
        if self.every_n_train_iters(runner, self.interval or 1):
            self._check(runner)

    def after_train_epoch(self, runner: Runner) -> None:
        """Reads the flags before the epoch is saved."""
        self._check(runner)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Refuses to save NaN or infinity. Called on the first rank only."""
        self._check(runner, together=False)
        bad = non_finite_tensors(checkpoint)
        if bad:
            raise ValueError(
                f'NaN or infinity in {listed(bad)} at iteration {runner.iter}: the checkpoint is '
                f'not written. {_way_back(runner)}')

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Refuses to continue from NaN or infinity."""
        bad = non_finite_tensors(checkpoint)
        if bad:
            raise ValueError(
                f'The checkpoint {runner._load_from or ""} holds NaN or infinity in '
                f'{listed(bad)}: its run had diverged, or the file is damaged. Give an earlier '
                'file; --resume without a value finds the newest good one.')

    def _check(self, runner: Runner, together: bool = True) -> None:
        """Raises if a flag is set; on all ranks at once if all of them check."""
        steps, self._steps = self._steps, []
        flags = [flags.all() for step in steps for *_, flags in step.stages]
        bad = ~torch.stack(flags).all() if flags else torch.tensor(False)
        if together and get_world_size() > 1:
            bad = bad.int()
            all_reduce(bad, 'max')
        if not bool(bad):
            return
        first = next((text for text in map(describe, steps) if text), None)
        if together:
            first = min((text for text in all_gather_object(first) if text), default=None)
        number, text, images = first or (runner.iter + 1, 'NaN or infinity', [])
        report = Path(runner.work_dir) / REPORT
        if runner.rank == 0 or not together:
            lines = '\n'.join([text, 'The batch:', *images]) + '\n'
            write_bytes(report, lines.encode(errors='surrogateescape'))
        raise ValueError(f'Training stops at iteration {number}: {text}. The batch of '
                         f'{len(images)} images is listed in {report}. {_way_back(runner)}')


def describe(step: Step) -> tuple[int, str, list[str]] | None:
    """The first stage of an iteration that was not finite.

    Returns:
        tuple | None: Iteration, what was wrong and the images of the batch; None if all was well.
    """
    for what, names, flags in step.stages:
        bad = (~flags).nonzero()[:, 0].tolist()
        if not bad:
            continue
        labels = step.images if names is None else names
        parts = listed([labels[i] for i in bad]) if len(labels) == len(flags) else 'the batch'
        if names is None:
            parts = f'{len(bad)} of {len(flags)} images: {parts}'
        text = f'NaN or infinity in {what} (epoch {step.epoch}; {parts})'
        return step.number, text, step.images
    return None


def batch_images(batch: Any) -> list[str]:
    """Names the images of a batch: files, or places in the training set."""
    samples = batch.get('data_samples') if isinstance(batch, Mapping) else None
    return [str(sample.get('img_path') or f'sample {sample.get("sample_idx")}')
            for sample in samples or ()]


def _way_back(runner: Runner) -> str:
    last = runner.message_hub.runtime_info.get('last_ckpt')
    if last and Path(last).is_file():
        return (f'The last good checkpoint is {last}; --resume continues from it. Remove the cause '
                'first: a damaged image, a learning rate that is too high, or overflow in half '
                'precision.')
    return ('No checkpoint was written yet. Remove the cause first: a damaged image, a learning '
            'rate that is too high, or overflow in half precision.')
