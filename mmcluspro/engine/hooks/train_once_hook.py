"""Leaves training mode after the first validation, as some published code does."""
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.registry import HOOKS


@HOOKS.register_module()
class TrainOnceHook(Hook):
    """From the second epoch on, no dropout and the batch statistics of the first.

    The released code of Troika and MSCI calls ``model.train()`` once, before the first epoch, and
    validation calls ``model.eval()``. This is a slip; the hook repeats it::

        custom_hooks = [dict(type='mmcluspro.TrainOnceHook')]
    """

    def __init__(self) -> None:
        self.validated = False

    def before_train(self, runner: Runner) -> None:
        """A resumed run has been validated."""
        self.validated = runner.epoch > 0

    def after_val(self, runner: Runner) -> None:
        """Training continues in the mode of validation."""
        self.validated = True

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """The loop calls ``train()`` at the start of each epoch."""
        if self.validated:
            runner.model.eval()
