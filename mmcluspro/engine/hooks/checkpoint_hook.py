"""Writes checkpoints that are complete or absent, and removes older ones only afterwards."""
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook
from mmengine.runner import Runner

from mmcluspro.registry import HOOKS
from mmcluspro.utils.atomic import is_abandoned, write_bytes, write_text

from ..loops import EpochLoop, IterLoop, Position

ATOMIC = 'mmcluspro_atomic'
STOP_FILE = 'stop_file'


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


class KeptUntilSaved:
    """A file backend that removes files only when the new one is there."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.waiting: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def remove(self, path: str) -> None:
        """Remembers the file."""
        self.waiting.append(path)


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
    - A validated epoch is saved again, with its calibration: resuming need not validate it again.
    - Files that are written inside an epoch or by iteration contain the position in the data and
      the random state of all ranks (:mod:`mmcluspro.engine.loops`), so training continues
      bit-identically.

    Args:
        *args, **kwargs: As in mmengine.
    """

    file_backend: Any
    backend_args: dict | None
    last_ckpt: str | None
    _saved_again = False

    def before_train(self, runner: Runner) -> None:
        """Finds the folder, and removes files left over from an interruption."""
        folder = str(self.out_dir or runner.work_dir)
        if self.backend_args is None and self.file_client_args is None and '://' not in folder:
            self.backend_args = dict(backend=ATOMIC)
        super().before_train(runner)
        if is_main_process() and self.backend_args == dict(backend=ATOMIC):
            for part in Path(self.out_dir).glob('*.part'):
                if is_abandoned(part):
                    part.unlink(missing_ok=True)
        if runner._resume:
            self.last_ckpt = runner.message_hub.runtime_info.get('last_ckpt')
            self._find_best(runner)
        if self.max_keep_ckpts > 0 and len(self.keep_ckpt_ids) == self.max_keep_ckpts:
            last = self.keep_ckpt_ids[0] - self.interval
            left = self.file_backend.join_path(self.out_dir, self.filename_tmpl.format(last))
            if is_main_process() and runner._resume and self.file_backend.isfile(left):
                self.file_backend.remove(left)

    def _find_best(self, runner: Runner) -> None:
        """Finds the best checkpoint if the folder was moved, and forgets a deleted one."""
        stored = getattr(self, 'best_ckpt_path', None)
        if not stored:
            return
        here = self.file_backend.join_path(self.out_dir, Path(stored).name)
        # The first rank looks, so that all of them agree.
        found: list[str | None] = [next(filter(self.file_backend.isfile, (stored, here)), None)]
        broadcast_object_list(found)
        (self.best_ckpt_path, ), info = found, runner.message_hub.runtime_info
        info['best_ckpt'] = found[0]
        if found[0] is None:
            runner.logger.warning(
                f'The best checkpoint {stored} is gone: the next validation chooses a new one.')
            del info['best_ckpt']
            info.pop('best_score', None)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Tells the loop where to continue."""
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
        with self._removed_after():
            super()._save_checkpoint_with_step(runner, step, meta)
            if stop_file and is_main_process():
                path = self.file_backend.join_path(self.out_dir, stop_file)
                if self.file_backend.isfile(path):
                    self.file_backend.remove(path)

    def _save_best_checkpoint(self, runner: Runner, metrics: dict) -> None:
        with self._removed_after():
            super()._save_best_checkpoint(runner, ranked(metrics))

    @contextmanager
    def _removed_after(self) -> Iterator[None]:
        if isinstance(self.file_backend, KeptUntilSaved):  # the best one saves the epoch again
            yield
            return
        backend = self.file_backend
        self.file_backend = kept = KeptUntilSaved(backend)
        try:
            yield
        finally:
            self.file_backend = backend
        for path in kept.waiting:
            if backend.isfile(path):
                backend.remove(path)
