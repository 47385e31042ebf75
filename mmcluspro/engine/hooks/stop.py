"""Saves and ends a training that a signal asks to stop."""
from typing import Any

import torch
from mmengine.dist import all_reduce, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.engine.resuming import EpochLoop, IterLoop
from mmcluspro.engine.signals import STOP
from mmcluspro.registry import HOOKS

from .checkpoints import SafeCheckpointHook

GPU_INTERVAL = 20


@HOOKS.register_module()
class StopHook(Hook):
    """Answers SIGTERM, SIGHUP and SIGUSR1 (Slurm): saves at the end of the iteration, then exits.

    The signals are caught by ``mmcluspro train`` (:mod:`mmcluspro.engine.signals`), which then
    ends with exit code 75. All ranks stop in the same iteration. Outside the iterations, where
    everything is on the disk, a signal ends the process at once.

    Args:
        interval (int, optional): With several ranks, iterations between two questions whether one
            of them got a signal. Defaults to None: 1 on CPUs, 20 on GPUs, where each question
            waits for the device.
    """

    # After CheckpointHook.
    priority = 'LOWEST'

    def __init__(self, interval: int | None = None) -> None:
        if interval is not None and interval < 1:
            raise ValueError(f'StopHook.interval must be positive, got {interval}.')
        self.interval = interval
        self._training = False

    def before_train_epoch(self, runner: Runner) -> None:
        """From here on a signal waits for the end of an iteration."""
        self._training = STOP.deferred = True

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict | None = None) -> None:
        """Saves between two iterations, if asked to."""
        by_epoch = isinstance(runner.train_loop, EpochLoop)
        if by_epoch and batch_idx + 1 == len(runner.train_dataloader):
            return  # the epoch ends and is saved
        # Gradients that wait for more batches are in no checkpoint.
        if not runner.optim_wrapper.should_update():
            return
        interval = self.interval or (GPU_INTERVAL if torch.cuda.is_available() else 1)
        if (get_world_size() == 1 or self.every_n_train_iters(runner, interval)) and _asked():
            self.stop_inside_epoch(runner, batch_idx + 1, runner.iter + 1)

    def stop_inside_epoch(self, runner: Runner, batches: int, step: int) -> None:
        """Saves and ends the process.

        Args:
            runner (Runner): The runner.
            batches (int): Finished batches of the epoch.
            step (int): Finished iterations of the training.
        """
        hook, loop = _checkpoint_hook(runner), runner.train_loop
        if hook is None or not isinstance(loop, (EpochLoop, IterLoop)):
            STOP.stop()
        elif isinstance(loop, EpochLoop):
            STOP.stop(hook.save_inside_epoch(runner, batches, step))
        else:
            if not hook.keeps(step):
                hook._save_checkpoint_with_step(runner, step, dict(epoch=runner.epoch, iter=step))
            STOP.stop(hook.last_ckpt)

    def after_train_epoch(self, runner: Runner) -> None:
        """Stops between two epochs."""
        if isinstance(runner.train_loop, EpochLoop) and _asked():
            hook = _checkpoint_hook(runner)
            if hook is not None and not hook.keeps(runner.epoch + 1):
                hook._save_checkpoint(runner)
            STOP.stop(None if hook is None else hook.last_ckpt)

    def before_val_epoch(self, runner: Runner) -> None:
        """A validation is made up for on resuming: it can be stopped at once."""
        hook = _checkpoint_hook(runner)
        STOP.deferred = self._training and hook is not None and not hook.saved_here(runner)
        if STOP.received and not STOP.deferred:
            STOP.stop()

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Defers signals again while training continues."""
        STOP.deferred = self._training

    def after_train(self, runner: Runner) -> None:
        """All is on the disk."""
        self._training = STOP.deferred = False
        if STOP.received:
            STOP.stop()


def _checkpoint_hook(runner: Runner) -> SafeCheckpointHook | None:
    return next((hook for hook in runner.hooks if isinstance(hook, SafeCheckpointHook)), None)


def _asked() -> bool:
    """Whether a rank got a signal; every rank has to call it."""
    asked = torch.tensor(int(STOP.received is not None))
    if get_world_size() > 1:
        all_reduce(asked, 'max')
        if bool(asked) and STOP.received is None:
            STOP.received = 'a signal to another rank'
    return bool(asked)
