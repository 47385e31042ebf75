"""Catches up on a validation that an interruption cut short."""
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop, Runner

from mmcluspro.registry import HOOKS

from ..loops import EpochLoop
from .calibration_hook import CalibrationHook


@HOOKS.register_module()
class ResumeHook(Hook):
    """Validates a resumed checkpoint first, if its validation was due and is not in it.

    mmengine saves an epoch before it validates it and, on resuming, continues with the next one: an
        epoch that was interrupted in between could never be chosen as the best. The epoch is saved
        again with what its validation chose (:class:`SafeCheckpointHook`).
    """

    # After CheckpointHook, which has to know its folder to keep the best.
    priority = 'LOWEST'

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Refuses to resume from a file that holds no run."""
        if runner._resume and 'message_hub' not in checkpoint:
            raise ValueError(
                'The checkpoint holds weights only, for example a published file: there is no run '
                'to resume. Leave --resume out and start from the weights with --cfg-options '
                'load_from=FILE, or resume from an epoch_*.pth of the run.')

    def before_train(self, runner: Runner) -> None:
        """Runs the missing validation."""
        validated = any(hook.chosen for hook in runner.hooks
                        if isinstance(hook, CalibrationHook))
        if runner._resume and runner.val_loop is not None and not validated and _due(runner):
            runner.logger.info('The checkpoint was written before its validation: validating now')
            runner.val_loop.run()


def _due(runner: Runner) -> bool:
    """Whether training validates at this point."""
    loop = runner.train_loop
    if isinstance(loop, EpochLoop) and loop.start is not None:
        return False  # inside an epoch
    by_epoch = isinstance(loop, EpochBasedTrainLoop)
    position = runner.epoch if by_epoch else runner.iter
    end = runner.max_epochs if by_epoch else runner.max_iters
    return position > 0 and position >= loop.val_begin and (
        position % loop.val_interval == 0 or position == end)
