"""Runs on this machine: several at a time, resumed, with time left; nothing finished is lost."""
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mmcluspro.version import __version__

from .forked import Forked
from .records import Run
from .run_store import Store
from .work_folder import Note, failure, open_log, time_left, validation_fields


def command(run: Run, tools: Path, work_dir: Path) -> list[str]:
    """The command of a run, as a user would type it."""
    seed = f'randomness.seed={run.seed}'
    tool, flags = ('train.py', ['--resume']) if run.learns else ('test.py', [])
    return [sys.executable, str(tools / tool), str(run.config), *flags, '--work-dir',
            str(work_dir), '--cfg-options', seed, *run.options]


def commit_of(folder: Path) -> str:
    """Short commit of a checkout, with a plus where code or configs are changed since."""
    def git(*words: str) -> str:
        done = subprocess.run(['git', '-C', str(folder), *words], capture_output=True, text=True,
                              check=False)
        return done.stdout.strip() if done.returncode == 0 else ''
    try:
        commit = git('rev-parse', '--short', 'HEAD')
    except FileNotFoundError:
        commit = ''
    if not commit:
        return f'mmcluspro {__version__}'
    return commit + ('+' if git('status', '--porcelain', '--', ':/mmcluspro', ':/configs') else '')


def clock(seconds: float) -> str:
    """For example '1 h 05 min', '12 min' or '40 s'."""
    if seconds < 100:
        return f'{seconds:.0f} s'
    minutes = round(seconds / 60)
    return f'{minutes // 60} h {minutes % 60:02d} min' if minutes >= 60 else f'{minutes} min'


def devices(slot: int, gpus: int, environment: Mapping[str, str]) -> dict[str, str]:
    """``CUDA_VISIBLE_DEVICES`` of the run in a slot: one of those that may be used.

    Args:
        slot (int): Runs at a time are numbered from 0.
        gpus (int): How many this process sees.
        environment (Mapping): May name them already.

    Returns:
        dict[str, str]: Empty where there is nothing to share.
    """
    if gpus < 2:
        return {}
    named = environment.get('CUDA_VISIBLE_DEVICES')
    allowed = named.split(',')[:gpus] if named else [str(number) for number in range(gpus)]
    return dict(CUDA_VISIBLE_DEVICES=allowed[slot % len(allowed)].strip())


@contextmanager
def interruptible() -> Iterator[None]:
    """Ends like after Ctrl-C, with nothing left running, also when asked to by another process."""
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # What is ignored stays so: nohup ignores SIGHUP, to go on after the terminal is closed.
    before = {number: signal.signal(number, interrupt)
              for number in (signal.SIGTERM, signal.SIGHUP)
              if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class Active:
    """A run at work."""
    run: Run
    process: subprocess.Popen | Forked
    log: IO[str]
    work_dir: Path
    slot: int
    start: float


class LocalJobs:
    """Runs on this machine.

    Args:
        store (Store): Where the records go.
        tools (Path): Folder of ``train.py`` and ``test.py``.
        work (Path): Folder for the work folders of the runs.
        jobs (int): Runs at a time. Defaults to 1.
        gpus (int): Runs are spread over this many. Defaults to 0.
        say (Callable): Prints a line. Defaults to ``print`` with flush.
        interval (float): Seconds between two lines on the runs at work.
            Defaults to 60.
        fork (bool): Fork the runs from this process, after :func:`warm_up`. Defaults to False.
    """

    def __init__(self, store: Store, tools: Path, work: Path, jobs: int = 1, gpus: int = 0,
                 say: Callable[[str], None] | None = None, interval: float = 60.0,
                 fork: bool = False) -> None:
        self.store, self.tools, self.work = store, tools, work
        self.jobs, self.gpus, self.interval, self.fork = jobs, gpus, interval, fork
        self.say = say or (lambda text: print(text, flush=True))
        self.commit = commit_of(tools)
        self.active: list[Active] = []
        self.durations: list[float] = []
        self.failed: dict[str, str] = {}
        self.total = 0

    def __call__(self, runs: Sequence[Run]) -> dict[str, str]:
        """Runs them all.

        Args:
            runs (Sequence[Run]): In this order.

        Returns:
            dict[str, str]: Message by the name of a run that failed.
        """
        waiting = deque(runs)
        self.total = len(runs)
        spoken = time.time()
        with interruptible():
            try:
                while waiting or self.active:
                    while waiting and len(self.active) < self.jobs:
                        run = waiting.popleft()
                        with self._guarded(run, len(waiting)):
                            self._start(run)
                    time.sleep(0.1)
                    for job in [job for job in self.active if job.process.poll() is not None]:
                        self.active.remove(job)
                        with self._guarded(job.run, len(waiting)):
                            self._finish(job, len(waiting))
                    if self.active and time.time() - spoken > self.interval:
                        spoken = time.time()
                        self.say(f'  at work: {", ".join(job.run.name for job in self.active)}; '
                                 + self.remaining(len(waiting)))
            finally:
                self._stop()
        return self.failed

    @contextmanager
    def _guarded(self, run: Run, waiting: int) -> Iterator[None]:
        """Reports the error of a run; the other runs continue."""
        try:
            yield
        except (OSError, ValueError, KeyError) as error:
            self.failed[run.name] = str(error)
            done = self.total - waiting - len(self.active)
            self.say(f'[{done}/{self.total}] FAILED {run.name}: {error}')

    def _start(self, run: Run) -> None:
        work_dir = self.work / run.name
        self._set_aside(run, work_dir)
        work_dir.mkdir(parents=True, exist_ok=True)
        slot = min(set(range(self.jobs)) - {job.slot for job in self.active})
        env = {**os.environ, **devices(slot, self.gpus, os.environ)}
        env.setdefault('OMP_NUM_THREADS', str(max(1, (os.cpu_count() or 1) // self.jobs)))
        words = command(run, self.tools, work_dir)
        log = open_log(work_dir)
        Note(work_dir).begin(run.fingerprint, self.commit)
        log.write(f'$ {shlex.join(words)}\n')
        log.flush()
        process = Forked(words, log, env) if self.fork else subprocess.Popen(
            words, stdout=log, stderr=log, env=env)
        self.active.append(Active(run, process, log, work_dir, slot, time.time()))

    def _set_aside(self, run: Run, work_dir: Path) -> None:
        """A broken run of another config must not be resumed with this one."""
        note = Note(work_dir)
        if note.path.exists() and note.content.get('fingerprint') != run.fingerprint:
            open_log(work_dir).close()
            old = work_dir.with_name(f'{work_dir.name}.{int(note.path.stat().st_mtime)}')
            work_dir.rename(old)
            self.say(f'  {run.name}: an unfinished run of another config is kept as {old}')

    def _finish(self, job: Active, waiting: int) -> None:
        job.log.close()
        note = Note(job.work_dir)
        seconds = note.end(time.time() - job.start)
        log = job.work_dir / 'output.log'
        if job.process.returncode != 0 or not (job.work_dir / 'test_metrics.json').exists():
            raise ValueError(f'{failure(log, job.process.returncode or 0)} (log: {log})')
        done = self.total - waiting - len(self.active)
        if job.run.learns:  # a zero-shot test does not measure a training
            self.durations.append(seconds)
        record = self.record(job.run, job.work_dir, note)
        auc = [f'{record["metrics"][key]:.2f} {world}' for key, world in (
            ('czsl/auc', 'closed'), ('czsl_open/auc', 'open')) if key in record['metrics']]
        self.say(f'[{done}/{self.total}] {job.run.name}: AUC {", ".join(auc)}, in {clock(seconds)}'
                 + (f'; {self.remaining(waiting)}' if waiting or self.active else ''))

    def record(self, run: Run, work_dir: Path, note: Note) -> dict[str, Any]:
        """Saves what a finished run measured."""
        self.store.save(
            run, commit=', '.join(note.content['commits']), seconds=round(note.content['seconds']),
            metrics=json.loads((work_dir / 'test_metrics.json').read_text()),
            **validation_fields(work_dir))
        return self.store.records[run.key]

    def remaining(self, waiting: int) -> str:
        """Time left, from the logs of the runs at work and the durations of finished ones."""
        now = time.time()
        left = [time_left(job.work_dir / 'output.log') for job in self.active]
        whole = [now - job.start + eta for job, eta in zip(self.active, left) if eta is not None]
        known = [*self.durations, *whole]
        if not known:
            return 'time left not known yet'
        typical = sum(known) / len(known)
        rest = [max(0.0, typical - (now - job.start)) if eta is None else eta
                for job, eta in zip(self.active, left)]
        total = max([(sum(rest) + waiting * typical) / self.jobs, *rest])
        return f'about {clock(total)} left' if total > 5 else 'soon done'

    def _stop(self) -> None:
        """Ends what is still at work (after an interrupt); it can be resumed."""
        for job in self.active:
            job.process.terminate()
        for job in self.active:
            try:
                job.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                job.process.kill()
                job.process.wait()
            job.log.close()
            Note(job.work_dir).end(time.time() - job.start)
        self.active = []
