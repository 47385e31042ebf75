"""Writes checkpoints that are complete or absent, and removes older ones only afterwards."""
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook
from mmengine.runner import Runner

from mmcluspro.engine.loops import EpochLoop, IterLoop, Position
from mmcluspro.registry import HOOKS
from mmcluspro.utils.files import is_abandoned, remove, write_bytes, write_text

ATOMIC = 'mmcluspro_atomic'
STOP_FILE = 'stop_file'
# What the message hub in a file may name: files of its run, without a folder.
NAMES = {STOP_FILE: r'iter_\d+\.pth', 'last_ckpt': r'(?:epoch|iter)_\d+\.pth',
         'best_ckpt': r'best_[\w.@-]+\.pth'}


@register_backend(ATOMIC)
class AtomicBackend(LocalBackend):
    """mmengine's local files, written under a temporary name, flushed to disk and renamed."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Writes a file.

        Raises:
            OSError: Names the file and what to do.
        """
        path = Path(filepath)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, obj)
        except OSError as error:
            raise OSError(
                error.errno, f'{path} cannot be written ({error.strerror}, {len(obj) / 1e6:.1f} '
                'MB). Earlier checkpoints are intact: make room or fix the folder, then '
                'continue with --resume') from error


class RunFolder:
    """A file backend that removes only files of the run, and none before the new one is there.

    Args:
        backend (Any): mmengine's file backend.
        hook (SafeCheckpointHook): Knows the folder of the run.
    """

    def __init__(self, backend: Any, hook: 'SafeCheckpointHook') -> None:
        self.backend, self.hook = backend, hook
        self.waiting: list[str] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def isdir(self, path: str) -> bool:
        """No: mmengine would remove a folder as a checkpoint of DeepSpeed."""
        return False

    def remove(self, path: str) -> None:
        """Removes a file; inside of :meth:`later`, when that ends."""
        if self.waiting is not None:
            self.waiting.append(path)
        elif self.backend.isfile(path):
            remove(self.hook.out_dir, path, self.backend)

    @contextmanager
    def later(self) -> Iterator[None]:
        """Removes nothing until the block ends, and nothing at all if it raises."""
        if self.waiting is not None:  # the best one saves the epoch again
            yield
            return
        self.waiting = []
        try:
            yield
        finally:
            waiting, self.waiting = self.waiting, None
        for path in waiting:
            self.remove(path)


def without_folder(path: Any) -> str:
    """The name of a file, from a path of any system."""
    return re.split(r'[/\\]', str(path))[-1]


def drop_strange(info: dict[str, Any]) -> list[str]:
    """Reduces the paths in a message hub to names, and empties what no run has written.

    Args:
        info (dict): ``runtime_info`` of the message hub in a file; it is changed.

    Returns:
        list[str]: What was emptied.
    """
    strange = []
    for start, pattern in NAMES.items():
        for key in [key for key in info if str(key).startswith(start) and info[key]]:
            name = without_folder(info[key])
            if re.fullmatch(pattern, name):
                info[key] = name
            else:
                strange.append(f'{key}={str(info[key])[:100]!r}')
                info[key] = ''
    numbers = info.get('keep_ckpt_ids', [])
    if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
        strange.append(f'keep_ckpt_ids={str(numbers)[:100]}')
        info['keep_ckpt_ids'] = []
    return strange


def ranked(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics by which epochs are compared: accuracy decides among those with an AUC or HM of 0.

    Without unseen images, or without seen ones, both are 0 in every epoch, and the first epoch
    would be the best.
    """
    found = dict(metrics)
    for key, value in metrics.items():
        prefix, _, name = key.rpartition('/')
        if name in ('auc', 'hm') and value == 0:
            accuracies = (metrics.get(f'{prefix}/{side}', 0.0) for side in ('seen', 'unseen'))
            found[key] = 1e-9 * sum(accuracies)  # below any AUC or HM that is not 0
    return found


@HOOKS.register_module()
class SafeCheckpointHook(CheckpointHook):
    """mmengine's ``CheckpointHook`` for runs that may end at any moment.

    - A file is written under another name, flushed to the disk, and renamed.
    - Older epochs and the previous best are removed after the new file is there, not before.
    - A file names others of its run without a folder, and only files in the folder of the run are
      removed: resuming a copy, or a file from elsewhere, loses nothing in another place.
    - A validated epoch is saved again, with its calibration: resuming need not validate it again.
    - Files that are written inside an epoch or by iteration contain the position in the data and
      the random state of all ranks (:mod:`mmcluspro.engine.loops`), so training continues
      bit-identically.

    Args:
        *args, **kwargs: As in mmengine.
    """

    out_dir: str
    backend_args: dict | None
    last_ckpt: str | None
    _saved_again = False

    @property
    def file_backend(self) -> RunFolder:
        """mmengine's file backend, in a :class:`RunFolder`."""
        return self._file_backend

    @file_backend.setter
    def file_backend(self, backend: Any) -> None:
        self._file_backend = RunFolder(backend, self)

    def before_train(self, runner: Runner) -> None:
        """Finds the folder, and removes files left over from an interruption."""
        folder = str(self.out_dir or runner.work_dir)
        if self.backend_args is None and self.file_client_args is None and '://' not in folder:
            self.backend_args = dict(backend=ATOMIC)
        super().before_train(runner)
        if is_main_process() and self.backend_args == dict(backend=ATOMIC):
            for part in Path(self.out_dir).glob('*.part'):
                if is_abandoned(part):
                    remove(self.out_dir, part)
            pointer = Path(runner.work_dir) / 'last_checkpoint'
            if pointer.is_symlink():  # mmengine would write through it
                remove(runner.work_dir, pointer)
        if runner._resume:
            self._find_files(runner)
        if self.max_keep_ckpts > 0 and len(self.keep_ckpt_ids) == self.max_keep_ckpts:
            last = self.keep_ckpt_ids[0] - self.interval
            left = self.file_backend.join_path(self.out_dir, self.filename_tmpl.format(last))
            if is_main_process() and runner._resume:
                self.file_backend.remove(left)

    def _find_files(self, runner: Runner) -> None:
        """Finds the files that the checkpoint names in the folder of the run; forgets others."""
        info = runner.message_hub.runtime_info
        for key in [key for key in info if key.startswith('best_ckpt')]:
            name, info[key] = info[key], self.file_backend.join_path(self.out_dir, info[key])
            # The first rank looks, so that all of them agree.
            there = [self.file_backend.isfile(info[key])]
            broadcast_object_list(there)
            if not there[0]:
                runner.logger.warning(f'The best checkpoint {name or "so far"} is not in '
                                      f'{self.out_dir}: the next validation chooses a new one.')
                del info[key]
                info.pop(key.replace('ckpt', 'score'), None)
        if info.get('last_ckpt'):
            info['last_ckpt'] = self.file_backend.join_path(self.out_dir, info['last_ckpt'])
        self.last_ckpt = info.get('last_ckpt')
        if self.save_best and len(self.key_indicators) == 1:
            self.best_ckpt_path = info.get('best_ckpt')
        elif self.save_best:
            self.best_ckpt_path_dict = {key: info.get(f'best_ckpt_{key}')
                                        for key in self.key_indicators}

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Names files without their folder."""
        info = checkpoint['message_hub']['runtime_info']
        for key in [key for key in info if key.startswith(('best_ckpt', 'last_ckpt'))]:
            info[key] = without_folder(info[key])

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Tells the loop where to continue, and takes no name of a strange file."""
        if runner._resume:
            strange = drop_strange(checkpoint.get('message_hub', {}).get('runtime_info', {}))
            if strange:
                runner.logger.warning(f'The checkpoint names files that no run writes; left out, '
                                      f'and the files untouched: {"; ".join(strange)}')
        saved = checkpoint.get('meta', {}).get('position')
        loop = runner._train_loop
        if saved is None or not runner._resume:
            return
        if not isinstance(loop, (EpochLoop, IterLoop)):
            raise ValueError(
                'The checkpoint was written inside an epoch, from which only runner_type='
                "'mmcluspro.ResumableRunner' can continue. Use the config that it was trained "
                'with, or resume from an epoch_*.pth.')
        loop.start = Position.read(saved)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """Keeps the best checkpoint, and the calibration of this epoch (or iteration)."""
        self._saved_again = False
        super().after_val_epoch(runner, metrics)
        step = runner.epoch if self.by_epoch else runner.iter
        if not self._saved_again and self.keeps(step):
            self._save_checkpoint_with_step(
                runner, step, dict(epoch=runner.epoch, iter=runner.iter))

    def saved_here(self, runner: Runner) -> bool:
        """Whether the finished epochs (or iterations) are on the disk."""
        return self.keeps(runner.epoch if self.by_epoch else runner.iter)

    def keeps(self, step: int) -> bool:
        """Whether the last file is that of this epoch (or iteration)."""
        return Path(str(self.last_ckpt)).name == self.filename_tmpl.format(step)

    def save_inside_epoch(self, runner: Runner, batches: int, step: int) -> str:
        """Saves between two iterations of an epoch; every rank has to call it.

        Args:
            runner (Runner): The runner.
            batches (int): Finished batches of the epoch.
            step (int): Finished iterations of the training.

        Returns:
            str: The file.
        """
        meta = dict(epoch=runner.epoch, iter=step,
                    position=runner.train_loop.position(batches)._asdict())
        name = f'iter_{step}.pth'
        runner.message_hub.update_info(STOP_FILE, name)
        runner.save_checkpoint(
            self.out_dir, name, save_optimizer=self.save_optimizer,
            save_param_scheduler=self.save_param_scheduler, meta=meta,
            backend_args=self.backend_args)
        path = self.file_backend.join_path(self.out_dir, name)
        if is_main_process():
            write_text(Path(runner.work_dir) / 'last_checkpoint', path)
        return path

    def _save_checkpoint_with_step(self, runner: Runner, step: int, meta: dict) -> None:
        self._saved_again = True
        loop = runner.train_loop
        if not self.by_epoch and isinstance(loop, IterLoop):
            meta['position'] = loop.position(meta['iter'])._asdict()
        stop_file = runner.message_hub.runtime_info.get(STOP_FILE)
        runner.message_hub.update_info(STOP_FILE, '')
        with self.file_backend.later():
            super()._save_checkpoint_with_step(runner, step, meta)
            if stop_file and is_main_process():
                self.file_backend.remove(self.file_backend.join_path(self.out_dir, stop_file))

    def _save_best_checkpoint(self, runner: Runner, metrics: dict) -> None:
        with self.file_backend.later():
            super()._save_best_checkpoint(runner, ranked(metrics))
