"""Resuming: safe loading, random state, and loops that continue with bit-identical results.

Importing mmcluspro does not change how mmengine loads files. Three ways to ask for the loaders of
:mod:`mmcluspro.utils.safe_load`:

- our command-line tools use them for the whole process;
- ``runner_type='mmcluspro.SafeRunner'`` in a config uses them for that runner;
- ``with mmcluspro.safe_loading():`` uses them for a block of your own code.
"""
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.dist import all_gather_object, get_rank, get_world_size
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop, Runner
from mmengine.runner import checkpoint as mmengine_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader
from torch import Tensor

from mmcluspro.errors import listed
from mmcluspro.utils.safe_load import (
    load_from_backend,
    load_from_http,
    load_from_local,
    non_finite_tensors,
    safe_load,
)

from .ranks import require_same_length
from .signals import STOP

LOADERS = {
    '': load_from_local,
    'http://': load_from_http,
    'https://': load_from_http,
    r'(\S+\:)?s3://': load_from_backend,
    r'(\S+\:)?petrel://': load_from_backend,
}


@contextmanager
def safe_loading() -> Iterator[None]:
    """Inside the block, mmengine loads checkpoints without running code from them.

    This covers ``Runner.load_checkpoint`` and ``resume``, ``init_cfg=dict(type='Pretrained')`` and
    every other user of mmengine's ``CheckpointLoader``. It also lets mmengine 0.10 resume its own
    checkpoints. Afterwards everything is as it was.
    """
    schemes, http = dict(CheckpointLoader._schemes), mmengine_checkpoint.load_from_http
    try:
        for prefix, loader in LOADERS.items():
            CheckpointLoader.register_scheme(prefixes=prefix, loader=loader, force=True)
        # torchvision://, open-mmlab:// and mmcls:// look up an address and call this name.
        mmengine_checkpoint.load_from_http = load_from_http
        yield
    finally:
        CheckpointLoader._schemes = schemes
        mmengine_checkpoint.load_from_http = http


def find_resumable(work_dir: str | Path) -> Path | None:
    """The newest checkpoint of a run that can be read and is free of NaN and infinity.

    A process that is killed while it writes leaves half a file, also where it writes a file again.

    Args:
        work_dir (str | Path): Folder of the run.

    Returns:
        Path | None: None where a run can only start anew.
    """
    folder = Path(work_dir)
    # Of the run that was started last: the folder may hold files of a longer one before it.
    pointer = folder / 'last_checkpoint'
    # Empty, if the process ended while it was written.
    last = Path((pointer.read_text() if pointer.is_file() else '').strip() or folder / 'none')
    if (folder / last.name).is_file():
        last = folder / last.name  # the folder was moved or copied
    # CheckpointHook.out_dir puts them elsewhere.
    found = {path for place in (folder, last.parent) for path in place.glob('*.pth')
             if re.fullmatch(r'(?:epoch|iter)_\d+\.pth', path.name)}
    order = sorted(found, key=lambda path: (path == last, path.stat().st_mtime_ns,
                                            int(path.stem.rpartition('_')[2])))
    for path in reversed(order):
        try:
            bad = non_finite_tensors(safe_load(path))
            if bad:
                raise ValueError(f'{path} holds NaN or infinity in {listed(bad)}.')
        except ValueError as error:
            # There is no logger yet: it is the runner's.
            print(f'warning: {error} Looking for an earlier one.', file=sys.stderr)
        else:
            return path
    return None


State = dict[str, Tensor]


def generator_state() -> State:
    """State of the generators of python, numpy, torch and the current GPU."""
    version, words, gauss = random.getstate()
    numpy_state: Any = np.random.get_state()
    _, keys, place, has_gauss, cached = numpy_state
    state = dict(
        python=torch.tensor([version, *words]),
        python_gauss=torch.tensor(float('nan') if gauss is None else gauss, dtype=torch.float64),
        numpy=torch.tensor([*keys.tolist(), place, has_gauss]),
        numpy_gauss=torch.tensor(cached, dtype=torch.float64),
        torch=torch.get_rng_state())
    if torch.cuda.is_available():
        state['cuda'] = torch.cuda.get_rng_state()
    return state


def restore_generators(state: State) -> None:
    """Puts the generators where :func:`generator_state` found them."""
    version, *words = state['python'].tolist()
    gauss: Any = float(state['python_gauss'])
    random.setstate((version, tuple(words), None if gauss != gauss else gauss))
    *keys, place, has_gauss = state['numpy'].tolist()
    np.random.set_state(('MT19937', np.array(keys, dtype=np.uint32), place, has_gauss,
                         float(state['numpy_gauss'])))
    torch.set_rng_state(state['torch'].cpu())
    if 'cuda' in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state['cuda'].cpu())


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
