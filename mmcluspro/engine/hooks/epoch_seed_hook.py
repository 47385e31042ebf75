"""Makes a resumed run equal to an uninterrupted one."""
import random

import numpy as np
import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmcluspro.engine.generators import State, generator_state, restore_generators
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
