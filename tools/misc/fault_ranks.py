"""Faults of a training on two ranks over gloo, started by torchrun."""
from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fault_runs import (
    RANK_TIMEOUT,
    Moments,
    chance_of,
    damaged_files,
    result_of,
    write_config,
)

TRAIN = Path(__file__).resolve().parents[1] / 'train.py'
# torchrun waits 30 s for a process that does not answer before it kills it.
LIMIT = RANK_TIMEOUT + 30 + 60
# Which signal goes to which process, and what torchrun's log must then name.
RANK_FAULTS = {
    'dead rank': (signal.SIGKILL, 'Signal 9 (SIGKILL)'),
    'stopped rank': (signal.SIGSTOP, 'lost another process of the job'),
    'SIGTERM to torchrun': (signal.SIGTERM, 'Stopped by '),
}


class RankCampaign:
    """Faults of one of two ranks.

    Args:
        base (Path): For everything that is written.
        seed (int): Of the moments.
    """

    def __init__(self, base: Path, seed: int) -> None:
        self.base, self.seed, self.count = base, seed, 0
        self.moments = Moments(base / 'rank_phases')
        self.config = write_config(base / 'ranks.py', 'epoch', self.moments.path)
        self.output = base / 'ranks.txt'
        self.output.write_text('')
        process = self._start(self._new())
        if not process.wait(600) or process.code:
            raise SystemExit(f'Two ranks without faults failed:\n{self.output.read_text()[-3000:]}')
        self.length = len(self.moments.phases())
        self.expected = result_of(self.run, 'epoch')

    def _new(self) -> Path:
        self.count += 1
        self.run = self.base / f'ranks{self.count}'
        return self.run

    def _start(self, run: Path) -> Torchrun:
        self.moments.path.write_text('start\n')
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        return Torchrun([
            '--nproc_per_node=2', '--master_addr=127.0.0.1', f'--master_port={port}', str(TRAIN),
            str(self.config), '--work-dir', str(run), '--launcher', 'pytorch', '--resume'],
            self.output)

    def inject(self, name: str, numbers: range, outcome: Callable[..., Any]) -> list[Any]:
        """Injects a fault so many times, then lets the run finish."""
        outcomes: list[Any] = []
        attempt = 0
        while len(outcomes) < len(numbers):
            found = self._hurt(name, chance_of(
                self.seed, 'ranks', name, numbers[len(outcomes)], attempt), outcome)
            attempt += 1
            if found is None:
                continue
            attempt = 0
            found.equal = self._goes_on()
            shutil.rmtree(self.run, ignore_errors=True)
            outcomes.append(found)
        return outcomes

    def _goes_on(self) -> bool:
        """Lets the run finish; whether it ends with the right bits."""
        again = self._start(self.run)
        said = len(self.output.read_text())
        done = again.wait(600) and again.code == 0
        again.end()
        if not done:
            print(f'a run did not finish (exit code {again.code}):\n'
                  f'{self.output.read_text()[said:][-3000:]}', file=sys.stderr)
            return False
        found = result_of(self.run, 'epoch')
        other = [key for key in found if found[key] != self.expected[key]]
        if other:
            print(f'other bits in {", ".join(other)}', file=sys.stderr)
        return not other

    def _hurt(self, name: str, chance: random.Random, outcome: Callable[..., Any]) -> Any:
        """Injects a fault into a new run; None if the run was done before it came."""
        number, says = RANK_FAULTS[name]
        process = self._start(self._new())
        moment = chance.randrange(1, self.length)  # before, the ranks import their modules
        # The last phase is the end: Python clears up, and torchrun looks at its processes.
        delay = chance.uniform(0, 0.1 if moment < self.length - 1 else 3)
        place = chance.randrange(2)
        if not self.moments.wait(process, moment, delay, LIMIT):
            return None
        ranks, phase = process.ranks(), self.moments.phases()[-1]
        said, begin = len(self.output.read_text()), time.monotonic()
        if 'torchrun' not in name and len(ranks) < 2:
            process.wait(LIMIT)
            return None
        with suppress(ProcessLookupError):
            os.kill(process.pid if 'torchrun' in name else ranks[place], number)
        found = outcome(name, '2 ranks', phase, 0.0)
        if not process.wait(LIMIT):
            found.note = f'still running after {LIMIT} s'
        process.end()
        found.seconds = time.monotonic() - begin
        text = self.output.read_text()[said:]
        # A signal at the end has nothing to save; torchrun may still count it as a failure.
        if process.code and says not in text and not (
                phase == 'end' and result_of(self.run, 'epoch') == self.expected):
            found.note = found.note or f'did not say {says!r}'
        found.note = found.note or '; '.join(damaged_files(self.run))
        if found.note:
            print(f'{name}, {phase}: {found.note}\n{text[-3000:]}', file=sys.stderr)
        return found


class Torchrun:
    """torchrun and its two ranks.

    Args:
        words (list[str]): Its arguments.
        output (Path): File for what all of them print.
    """

    def __init__(self, words: list[str], output: Path) -> None:
        paths = [str(Path(__file__).parent), *filter(None, [os.environ.get('PYTHONPATH')])]
        with open(output, 'a') as file:
            self._process = subprocess.Popen(
                [sys.executable, '-m', 'torch.distributed.run', *words], stdout=file, stderr=file,
                start_new_session=True,
                env={**os.environ, 'OMP_NUM_THREADS': '1', 'PYTHONPATH': os.pathsep.join(paths)})
        self.pid = self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.returncode

    def wait(self, seconds: float) -> bool:
        """Whether it ended within so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.code is not None

    def ranks(self) -> list[int]:
        """Process ids of the ranks."""
        text = Path(f'/proc/{self.pid}/task/{self.pid}/children')
        return [int(pid) for pid in text.read_text().split()] if text.exists() else []

    def end(self) -> None:
        """Ends it and its ranks in any case."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait(60)
