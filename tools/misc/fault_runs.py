"""Small trainings and predictions as processes that can be hurt, and what they leave behind."""
from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch
from mmengine.config import Config
from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from mmcluspro.cli import main as mmcluspro_main
from mmcluspro.engine.resuming import safe_load
from mmcluspro.utils.digest import arrays_digest
from mmcluspro.utils.safe_load import non_finite_tensors

CONFIG = """
_base_ = '{{{{$MMCLUSPRO_CONFIGS:configs}}}}/cluspro_shapes.py'
train_dataloader = dict(batch_size=16, dataset=dict(indices=48, serialize_data=False))
val_dataloader = dict(
    batch_size=32, dataset=dict(indices=list(range(0, 519, 20)), serialize_data=False))
test_dataloader = dict(
    batch_size=32, dataset=dict(indices=list(range(0, 1038, 40)), serialize_data=False))
default_hooks = dict(
    logger=dict(interval=1), checkpoint=dict(by_epoch={by_epoch}, interval={interval}),
    curve=None)
train_cfg = dict({loop})
param_scheduler = dict(
    _delete_=True, type='CosineAnnealingLR', T_max=8, by_epoch=False)
env_cfg = dict(dist_cfg=dict(timeout={timeout}))
"""
MODES = {
    'epoch': dict(by_epoch=True, interval=1, loop='by_epoch=True, max_epochs=2'),
    'iter': dict(by_epoch=False, interval=2,
                 loop='_delete_=True, by_epoch=False, max_iters=8, val_interval=4'),
}
RANK_TIMEOUT = 60  # seconds that a rank waits for a silent one; less fails on a busy machine


@HOOKS.register_module()
class PhaseHook(Hook):
    """Adds a line with the phase of the run to a file, for :class:`Moments`."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def _note(self, phase: str) -> None:
        if get_rank() == 0:
            with self.path.open('a') as file:
                file.write(f'{phase}\n')

    def before_train(self, runner: Any) -> None:
        self._note('prototypes')

    def before_save_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        self._note('saving')

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        self._note('training')

    def before_val(self, runner: Any) -> None:
        self._note('validation')

    def before_test(self, runner: Any) -> None:
        self._note('test')

    def after_test(self, runner: Any) -> None:
        self._note('end')


def write_config(path: Path, mode: str, phase_file: Path | None = None) -> Path:
    """Writes the config of a run of seconds: two epochs, or eight iterations."""
    text = CONFIG.format(timeout=RANK_TIMEOUT, **MODES[mode])
    if phase_file is not None:
        text += "custom_imports = dict(imports=['fault_runs'])\n"  # for processes of torchrun
        text += f"custom_hooks = [dict(type='mmengine.PhaseHook', path={str(phase_file)!r})]\n"
    path.write_text(text)
    return path


def chance_of(*words: Any) -> random.Random:
    """The source of chance of one fault: of its name and number, not of those before it."""
    return random.Random(' '.join(map(str, words)))


class Moments:
    """Moments of a run by what it does: seconds would mean another phase on a busy machine.

    Args:
        path (Path): What :class:`PhaseHook` writes to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def phases(self) -> list[str]:
        """The phases so far; the last one is under way."""
        return self.path.read_text().split()

    def wait(self, process: Process | Launched, number: int, delay: float, limit: float) -> bool:
        """Waits for a phase and a little more; whether the process still runs then."""
        end = time.monotonic() + limit
        while len(self.phases()) <= number and time.monotonic() < end:
            if process.wait(0.01):
                return False
        return not process.wait(delay)


class Launched(Protocol):
    """A process that :class:`Moments` can wait for."""

    def wait(self, seconds: float) -> bool:
        """Whether it ended within so many seconds."""


class Process:
    """A command of mmcluspro in a forked process: nothing has to be imported again.

    Args:
        words (Sequence[str]): The command, such as ``['train', 'config.py']``.
        output (Path): File for what it prints.
        prepare (Callable, optional): Runs in the new process first.
    """

    def __init__(self, words: Sequence[str], output: Path,
                 prepare: Callable[[], None] | None = None) -> None:
        self.output, self.code = output, None
        sys.stdout.flush()
        self.start = time.monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until it is no longer ours
        self.pid = os.fork()
        if self.pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        if self.pid == 0:
            self._run(list(words), prepare)

    def _run(self, words: list[str], prepare: Callable[[], None] | None) -> None:
        code = 70
        try:
            os.setsid()
            file = os.open(self.output, os.O_WRONLY | os.O_APPEND)
            os.dup2(file, 1)
            os.dup2(file, 2)
            # Slow, and no part of what is tried here: versions of compilers, a tidy config text.
            Runner._log_env = lambda *_: None
            Config.pretty_text = property(lambda cfg: repr(cfg))
            if prepare is not None:
                prepare()
            code = mmcluspro_main(words)
            self.output.with_suffix('.modules').write_text('\n'.join(sys.modules))
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except KeyboardInterrupt:
            code = 130
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def wait(self, seconds: float) -> bool:
        """Whether the process ended within so many seconds."""
        end = time.monotonic() + seconds
        while self.code is None:  # looks at least once, also where the time is 0
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= end:
                break
            else:
                time.sleep(0.005)
        return self.code is not None

    def send(self, number: int) -> None:
        """Sends a signal, if the process is there."""
        if self.code is None:
            os.kill(self.pid, number)

    def end(self) -> None:
        """Ends it in any case."""
        if not self.wait(0):
            os.kill(self.pid, signal.SIGKILL)
            self.wait(60)

    def said(self) -> str:
        """What all processes with this output printed."""
        return self.output.read_text(errors='replace')


def import_all(names: Sequence[str]) -> None:
    """Imports what a run has imported, so that the next ones need not."""
    for name in names:
        if name != '__main__':
            with suppress(Exception):
                import_module(name)


def train_words(config: Path, folder: Path) -> list[str]:
    """The command of a training that goes on where it was."""
    return ['train', str(config), '--work-dir', str(folder), '--resume']


def damaged_files(folder: Path) -> list[str]:
    """Checkpoints of a folder that cannot be read, or hold NaN."""
    bad = []
    for path in sorted(folder.glob('*.pth')):
        try:
            if non_finite_tensors(safe_load(path)):
                bad.append(f'{path.name}: NaN')
        except ValueError as error:
            bad.append(f'{path.name}: {error}')
    return bad


def result_of(folder: Path, mode: str) -> dict[str, Any]:
    """What a finished training must have in common with another, to the last bit."""
    last = safe_load(folder / ('epoch_2.pth' if mode == 'epoch' else 'iter_8.pth'))
    best = next(folder.glob('best_*.pth'))
    states = {f'{key}.{name}': value for key, state in last['optimizer']['state'].items()
              for name, value in state.items() if torch.is_tensor(value)}
    return dict(
        weights=_digest(last['state_dict']), optimizer=_digest(states), best=best.name,
        best_weights=_digest(safe_load(best)['state_dict']),
        calibration=last['meta'].get('calibration'),
        validations=last['message_hub']['log_scalars']['val/czsl/auc'].data[0].tolist(),
        test=(folder / 'test_metrics.json').read_text())


def _digest(tensors: dict[str, torch.Tensor]) -> str:
    return arrays_digest({name: tensor.numpy() for name, tensor in tensors.items()})
