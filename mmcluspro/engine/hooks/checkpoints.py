"""Checkpoints that are complete or absent, and runs that continue from them."""
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook, Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import EpochBasedTrainLoop, Runner

from mmcluspro.engine.resuming import EpochLoop, IterLoop, Position
from mmcluspro.errors import listed
from mmcluspro.registry import HOOKS
from mmcluspro.utils.files import is_abandoned, remove, write_bytes, write_text

from .evaluation import EvaluationHook
from .parts import is_resuming

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
      the random state of all ranks (:mod:`mmcluspro.engine.resuming`), so training continues
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


# Attributes of a parameter scheduler that say how far it is; the others say what it does.
PROGRESS = ('last_step', '_global_step', '_last_value', 'verbose', 'best', 'num_bad_epochs',
            'cooldown_counter')
# Settings of an optimizer that depend on the version of torch, not on what is computed.
TECHNICAL = {'foreach', 'fused', 'maximize', 'capturable', 'differentiable',
             'decoupled_weight_decay', 'amsgrad'}
FROM = ('Resuming: weights, state of the optimizer, position, seed, random state and best epoch '
        'come from the checkpoint, so randomness.seed, load_from and initial weights of the config '
        'have no effect. All else is that of the config')


@HOOKS.register_module()
class ResumeHook(Hook):
    """Resumes with the config as it is now, and validates first what was not validated.

    mmengine takes the schedule and the settings of the optimizer from the checkpoint and ignores
        those of the config: an extended run would train on at the last rate of the old schedule.
        Here the config holds. Where it differs, the run goes on at the rate that its schedule has
        at this point; where it does not, every bit is that of the checkpoint.

    mmengine saves an epoch before it validates it and, on resuming, continues with the next one: an
        epoch that was interrupted in between could never be chosen as the best. The epoch is saved
        again with what its validation chose (:class:`SafeCheckpointHook`).
    """

    # After CheckpointHook, which has to know its folder to keep the best.
    priority = 'LOWEST'

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Refuses to resume from a file that holds no run; puts the config's schedule into it."""
        if not is_resuming(runner):
            return
        if 'message_hub' not in checkpoint:
            raise ValueError(
                'The checkpoint holds weights only, for example a published file: there is no run '
                'to resume. Leave --resume out and start from the weights with --cfg-options '
                'load_from=FILE, or resume from an epoch_*.pth of the run.')
        changed = follow_config(runner, checkpoint)
        if changed:
            runner.logger.warning(f'{FROM}, from here on also where it differs from the '
                                  f'checkpoint: {listed(changed, 5)}.')
        else:
            runner.logger.info(f'{FROM}; its schedule and optimizer are those of the checkpoint.')

    def before_train(self, runner: Runner) -> None:
        """Runs the missing validation."""
        validated = any(hook.chosen for hook in runner.hooks
                        if isinstance(hook, EvaluationHook))
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


def follow_config(runner: Runner, checkpoint: dict[str, Any]) -> list[str]:
    """Puts the optimizer's settings and the schedule of the config into a checkpoint.

    Args:
        runner (Runner): With the optimizer and schedule of the config, as at the start of a run.
        checkpoint (dict): ``optimizer`` and ``param_schedulers`` are changed where the config
            differs.

    Returns:
        list[str]: What differs.

    Raises:
        ValueError: The state of the checkpoint is that of another optimizer.
    """
    wrapper, schedulers = runner.optim_wrapper, runner.param_schedulers or []
    if not (isinstance(wrapper, OptimWrapper) and isinstance(schedulers, list)
            and 'optimizer' in checkpoint):
        return []  # several optimizers: all of it is that of the checkpoint
    theirs, ours = (_groups(state) for state in (checkpoint['optimizer'], wrapper.state_dict()))
    _require_same_optimizer(theirs, ours)
    scheduled = {scheduler.param_name for scheduler in schedulers} | {
        name.removeprefix('initial_') for group in theirs for name in group
        if name.startswith('initial_')}
    saved = checkpoint.get('param_schedulers') or []
    changed = [f'{len(saved)} → {len(schedulers)} schedules'] * (len(saved) != len(schedulers))
    for place, (before, scheduler) in enumerate(zip(saved, schedulers)):
        changed += [f'param_scheduler {place} {name} {_text(before.get(name))} → {_text(value)}'
                    for name, value in scheduler.state_dict().items() if name not in PROGRESS
                    and not callable(value) and _plain(before.get(name)) != _plain(value)]
    step, before_step = _position(runner, checkpoint['meta']), checkpoint['meta']['iter']
    if step != before_step:
        checkpoint['meta']['iter'] = step
        changed.append(f'batches per epoch, so iteration {before_step} is number {step}')
    if changed:
        _replay(runner, step, checkpoint['meta']['epoch'])
        checkpoint['param_schedulers'] = [each.state_dict() for each in schedulers]
        ours = _groups(wrapper.state_dict())
        name = schedulers[0].param_name if schedulers else 'lr'
        changed.append(f'{name} goes on at {_text(ours[0][name])}, not at {_text(theirs[0][name])}')
    settings = set()
    for group, new in zip(theirs, ours):
        for name in set(new) - {'params'}:
            is_scheduled = name.removeprefix('initial_') in scheduled
            if is_scheduled and not changed:
                continue
            if not is_scheduled and name in group and _plain(group[name]) != _plain(new[name]):
                settings.add(f'optimizer {name} {_text(group[name])} → {_text(new[name])}')
            group[name] = new[name]
    return changed + sorted(settings)


def _position(runner: Runner, meta: dict[str, Any]) -> int:
    """Finished iterations, in batches of now: another batch size makes others of an epoch."""
    if not isinstance(runner.train_loop, EpochBasedTrainLoop):
        return int(meta['iter'])
    inside = (meta.get('position') or {}).get('batches', 0)
    return int(meta['epoch']) * len(runner.train_dataloader) + int(inside)


def _groups(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Parameter groups of an optimizer's state, with the one that mmengine adds to several."""
    base = state.get('base_param_settings')
    return state['param_groups'] + ([base] if base else [])


def _require_same_optimizer(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    """Refuses what torch would load without a word, or with a traceback some steps later."""
    def settings(groups: list[dict[str, Any]]) -> set[str]:
        return {name for name in groups[0] if not name.startswith('initial_')}

    other = sorted((settings(theirs) ^ settings(ours)) - TECHNICAL)
    if other:
        found = f'it has other settings ({listed(other)})'
    elif [len(group['params']) for group in theirs] != [len(group['params']) for group in ours]:
        found = (f'it trains {sum(len(group["params"]) for group in theirs)} tensors in '
                 f'{len(theirs)} groups, the config {sum(len(group["params"]) for group in ours)} '
                 f'in {len(ours)}')
    else:
        return
    raise ValueError(
        f'The optimizer of the checkpoint is not that of optim_wrapper in the config: {found}. '
        'Resume with the optimizer and the trained parts of the run, or start a new run from its '
        'weights, with --cfg-options load_from=FILE instead of --resume.')


def _replay(runner: Runner, steps: int, epochs: int) -> None:
    """Steps the schedule of the config to a position."""
    schedulers = runner.param_schedulers or []
    if any(hasattr(each, 'need_val_args') for each in schedulers):
        raise ValueError(
            'param_scheduler of the config differs from that of the checkpoint and follows '
            'validation, so its rate at this point is not known. Resume with the param_scheduler '
            'of the run, or start a new run from its weights, with --cfg-options load_from=FILE '
            'instead of --resume.')
    if not isinstance(runner.train_loop, EpochBasedTrainLoop):
        epochs = 0  # all of it is one epoch to the hooks
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Detected call of')  # the optimizer does not step
        for step in range(1, steps + 1):
            ends_epoch = step % len(runner.train_dataloader) == 0 and epochs > 0
            for each in schedulers:
                if not each.by_epoch:
                    each.step()
            for each in schedulers if ends_epoch else ():
                if each.by_epoch:
                    each.step()


def _plain(value: Any) -> Any:
    """The same with lists for tuples, to compare."""
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _text(value: Any) -> str:
    """A value for a message; equal ones of a list once."""
    if isinstance(value, (list, tuple)):
        return listed(list(dict.fromkeys(map(_text, value))), 3)
    return f'{value:.6g}' if isinstance(value, float) else str(value)
