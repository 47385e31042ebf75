"""Says what a resumed run takes from where, and catches up on a validation that was cut short."""
import warnings
from typing import Any

from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import EpochBasedTrainLoop, Runner

from mmcluspro.engine.loops import EpochLoop
from mmcluspro.errors import listed
from mmcluspro.registry import HOOKS

from .evaluation import EvaluationHook
from .parts import is_resuming

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
