"""Training loops that can be resumed inside an epoch with bit-identical results."""
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.dist import all_gather_object, get_rank, get_world_size
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop, Runner

from .generators import State, generator_state, restore_generators
from .ranks import require_same_length
from .signals import STOP


class Position(NamedTuple):
    """Position of a training between two iterations.

    Attributes:
        batches (int): Finished batches of the current epoch; by iteration, of the training.
        per_epoch (int): Batches of an epoch.
        generators (list[dict]): State of the random generators of each rank.
    """
    batches: int
    per_epoch: int
    generators: list[State]

    @classmethod
    def here(cls, batches: int, per_epoch: int) -> 'Position':
        """The position of all ranks; every rank has to call it."""
        return cls(batches, per_epoch, all_gather_object(generator_state()))

    @classmethod
    def read(cls, saved: dict[str, Any]) -> 'Position':
        """From the ``meta.position`` of a checkpoint."""
        return cls(int(saved['batches']), int(saved['per_epoch']), list(saved['generators']))

    def check(self, per_epoch: int) -> None:
        """Refuses another batch size, other data or another number of ranks."""
        if per_epoch != self.per_epoch:
            raise ValueError(
                f'The checkpoint was written after {self.batches} of {self.per_epoch} batches of '
                f'an epoch; the config now makes {per_epoch} batches of it. Resume with the same '
                'data, batch size and number of processes, or from an epoch_*.pth.')

    def restore(self) -> None:
        """Puts the generators of this rank where they were."""
        if get_rank() < len(self.generators):
            restore_generators(self.generators[get_rank()])


class EpochLoop(EpochBasedTrainLoop):
    """mmengine's ``EpochBasedTrainLoop`` that can continue inside an epoch.

    Finished batches are read again and dropped, so the next batch is the same as without an
    interruption, including augmentation.

    Args:
        *args, **kwargs: As in mmengine: ``max_epochs``, ``val_begin``, ``val_interval`` …
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        require_batches(self.dataloader)
        require_same_length(len(self.dataloader))
        self.start: Position | None = None

    def run_epoch(self) -> None:
        """Iterates one epoch, or the rest of one."""
        self.runner.call_hook('before_train_epoch')
        self.runner.model.train()
        batches = iter(self.dataloader)
        start, self.start = self.start, None
        done = 0 if start is None else start.batches
        if start is not None:
            start.check(len(self.dataloader))
            for _ in range(done):
                next(batches)
            start.restore()
        while (batch := self._next(batches, done)) is not None:
            self.run_iter(done, batch)
            done += 1
        self.runner.call_hook('after_train_epoch')
        self._epoch += 1

    def _next(self, batches: Iterator[Any], done: int) -> Any:
        try:
            return next(batches, None)
        except RuntimeError:
            # A signal to the whole process group, as scancel sends it, ends the workers, too.
            if STOP.received and get_world_size() == 1:
                self.runner.call_hook('stop_inside_epoch', batches=done, step=self._iter)
            raise

    def position(self, batches: int) -> Position:
        """Where the loop stands, for a checkpoint."""
        return Position.here(batches, len(self.dataloader))


class IterLoop(IterBasedTrainLoop):
    """mmengine's ``IterBasedTrainLoop`` that resumes with bit-identical results.

    Args:
        *args, **kwargs: As in mmengine: ``max_iters``, ``val_begin``, ``val_interval`` …
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        require_batches(self.dataloader)
        self.dataloader_iterator = endless(self.dataloader, self.runner)
        self.start: Position | None = None

    def run(self) -> Any:
        """Trains; hooks see the whole training as one epoch."""
        self.runner.call_hook('before_train')
        self.runner.call_hook('before_train_epoch')
        for _ in range(self._iter):
            next(self.dataloader_iterator)
        start, self.start = self.start, None
        if start is not None:
            start.check(len(self.dataloader))
            start.restore()
        while self._iter < self._max_iters and not self.stop_training:
            self.runner.model.train()
            self.run_iter(next(self.dataloader_iterator))
            self._decide_current_val_interval()
            if (self.runner.val_loop is not None and self._iter >= self.val_begin
                    and (self._iter % self.val_interval == 0 or self._iter == self._max_iters)):
                self.runner.val_loop.run()
        self.runner.call_hook('after_train_epoch')
        self.runner.call_hook('after_train')
        return self.runner.model

    def position(self, batches: int) -> Position:
        """Where the loop stands, for a checkpoint.

        A validation that a resumed run repeats saves before training continues, when the generators
        of the process are not yet those of the training.
        """
        return self.start or Position.here(batches, len(self.dataloader))


def require_batches(dataloader: Any) -> None:
    """Refuses a loader without a batch, over which a training would never end."""
    if not len(dataloader):
        raise ValueError(
            f'train_dataloader gives no batch: {len(dataloader.sampler)} samples do not fill one '
            'of train_dataloader.batch_size, and drop_last=True leaves it out. Set a smaller '
            'batch_size, or train_dataloader.drop_last=False.')


def endless(dataloader: Any, runner: Runner) -> Iterator[Any]:
    """The batches of one epoch after the other; workers are seeded by (seed, epoch, rank)."""
    epoch = 0
    while True:
        if hasattr(dataloader.sampler, 'set_epoch'):
            dataloader.sampler.set_epoch(epoch)
        sequence = np.random.SeedSequence((runner.seed or 0, epoch, get_rank()))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(sequence.generate_state(1)[0]))
            batches = iter(dataloader)
        yield from batches
        epoch += 1
