"""Random state and modes of training: equal after a resume, or as published code has them."""
import random
from typing import Any

import numpy as np
import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.engine.resuming import State, generator_state, restore_generators
from mmcluspro.registry import HOOKS


@HOOKS.register_module()
class EpochSeedHook(Hook):
    """Seeds all random generators from (seed, epoch, rank) before each epoch.

    mmengine does not save the state of the generators, so dropout and augmentation would differ
    after ``--resume``. Dataloader workers augment images in processes that this hook does not
    reach; exact equality needs ``num_workers=0``, as in the Shapes configs.
    """

    priority = 'VERY_HIGH'

    def __init__(self) -> None:
        self._state: State = {}

    def before_train_epoch(self, runner: Runner) -> None:
        """Seeds python, numpy and torch."""
        sequence = np.random.SeedSequence((runner.seed, runner.epoch, get_rank(), get_world_size()))
        seed = int(sequence.generate_state(1)[0])
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)

    def before_val(self, runner: Runner) -> None:
        """Remembers the generators."""
        self._state = generator_state()

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Restores the generators, so that a validation does not change what follows."""
        restore_generators(self._state)


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
