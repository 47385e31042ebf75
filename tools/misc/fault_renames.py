"""Ends a training before and after each rename of each file that it writes, or fills its disk."""
from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fault_runs import Process, damaged_files, train_words

BEFORE, AFTER, FULL = 'SIGKILL before a rename', 'SIGKILL after a rename', 'full disk at a rename'
RENAMES = (BEFORE, AFTER, FULL)
LIMIT = 360
RENAMERS = ('replace', 'rename', 'link')


def at_rename(log: Path, kind: str = '', number: int = -1) -> Callable[[], None]:
    """What happens at a rename of the process, for ``prepare``; all are noted in ``log``.

    Args:
        log (Path): File of names.
        kind (str): One of :data:`RENAMES`. Defaults to '': nothing.
        number (int): Which one. Defaults to -1: none.
    """
    def prepare() -> None:
        own, count = os.getpid(), 0

        def watched(whole: Callable[..., None]) -> Callable[..., None]:
            def rename(source: Any, target: Any, **options: Any) -> None:
                nonlocal count
                if os.getpid() != own:
                    return whole(source, target, **options)
                here, count = count == number, count + 1
                with log.open('a') as file:
                    file.write(f'{Path(target).name}\n')
                if here and kind == BEFORE:
                    os.kill(own, signal.SIGKILL)
                if here and kind == FULL:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
                whole(source, target, **options)
                if here and kind == AFTER:
                    os.kill(own, signal.SIGKILL)
            return rename

        for name in RENAMERS:
            setattr(os, name, watched(getattr(os, name)))
    return prepare


class RenameCampaign:
    """Faults at the renames of a training.

    Args:
        training (TrainingCampaign): Whose runs are hurt.
        base (Path): For the list of renames.
    """

    def __init__(self, training: Any, base: Path) -> None:
        self.training, self.log = training, base / 'renames.txt'
        process = self._start()
        if not process.wait(LIMIT) or process.code:
            raise SystemExit(f'The run without faults failed:\n{process.said()[-2000:]}')
        self.names = self.log.read_text().split('\n')[:-1]

    def _start(self, kind: str = '', number: int = -1) -> Process:
        self.log.write_text('')
        return Process(train_words(self.training.config, self.training.new()),
                       self.training.output, at_rename(self.log, kind, number))

    def inject(self, kind: str, number: int, outcome: Callable[..., Any]) -> Any:
        """Injects a fault at one rename."""
        begin = time.monotonic()
        process = self._start(kind, number)
        ended = process.wait(LIMIT)
        found = outcome(kind, 'renames', self.names[number], time.monotonic() - begin)
        said = process.said()
        if not ended:
            found.note = f'still running after {LIMIT} s'
            process.end()
        elif process.code not in ((0, 2) if kind == FULL else (-signal.SIGKILL, )):
            found.note = f'exit code {process.code}'
        elif 'Traceback' in said or process.code == 2 and 'error: ' not in said:
            found.note = 'a traceback, or no message'
        found.note = found.note or '; '.join(damaged_files(self.training.run))
        found.equal = self.training.finish(Process(
            train_words(self.training.config, self.training.run), self.training.output))
        return found
