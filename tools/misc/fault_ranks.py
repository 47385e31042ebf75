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

from fault_runs import RANK_TIMEOUT, damaged_files, result_of, write_config

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
        self.base, self.random, self.count = base, random.Random(seed), 0
        self.config = write_config(base / 'ranks.py', 'epoch')
        self.output = base / 'ranks.txt'
        self.output.write_text('')
        start = time.monotonic()
        process = self._start(self._new())
        if process.wait(600):
            raise SystemExit(f'Two ranks without faults failed:\n{self.output.read_text()[-3000:]}')
        self.seconds = time.monotonic() - start
        self.expected = result_of(self.run, 'epoch')

    def _new(self) -> Path:
        self.count += 1
        self.run = self.base / f'ranks{self.count}'
        return self.run

    def _start(self, run: Path) -> subprocess.Popen:
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        command = [sys.executable, '-m', 'torch.distributed.run', '--nproc_per_node=2',
                   '--master_addr=127.0.0.1', f'--master_port={port}', str(TRAIN),
                   str(self.config), '--work-dir', str(run), '--launcher', 'pytorch', '--resume']
        with open(self.output, 'a') as file:
            return subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True,
                                    env={**os.environ, 'OMP_NUM_THREADS': '1'})

    def inject(self, name: str, count: int, outcome: Callable[..., Any]) -> list[Any]:
        """Injects a fault so many times, then lets the run finish."""
        number, says = RANK_FAULTS[name]
        outcomes = []
        for _ in range(count):
            run = self._new()
            process = self._start(run)
            ranks = self._wait_for_training(process, run)
            time.sleep(self.random.uniform(0, self.seconds / 3))
            said = len(self.output.read_text())
            begin = time.monotonic()
            victim = process.pid if 'torchrun' in name else self.random.choice(ranks or [0])
            hit = process.poll() is None and bool(ranks)
            if hit:
                with suppress(ProcessLookupError):
                    os.kill(victim, number)
            found = outcome(name, '2 ranks', 'training', 0.0)
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                found.note = f'still running after {LIMIT} s'
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            found.seconds = time.monotonic() - begin
            text = self.output.read_text()[said:]
            if hit and process.returncode and says not in text:
                found.note = found.note or f'did not say {says!r}'
            found.note = found.note or '; '.join(damaged_files(run))
            if found.note:
                print(f'{name}: {found.note}\n{text[-3000:]}', file=sys.stderr)
            again = self._start(run)
            found.equal = again.wait(600) == 0 and result_of(run, 'epoch') == self.expected
            shutil.rmtree(run, ignore_errors=True)
            outcomes.append(found)
        return outcomes

    def _wait_for_training(self, process: subprocess.Popen, run: Path) -> list[int]:
        """Waits until the ranks are at work; returns their process ids."""
        while process.poll() is None and not list(run.glob('*/vis_data/config.py')):
            time.sleep(0.1)
        text = Path(f'/proc/{process.pid}/task/{process.pid}/children')
        return [int(pid) for pid in text.read_text().split()] if text.exists() else []
