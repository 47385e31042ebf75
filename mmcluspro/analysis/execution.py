"""Runs on this machine: several at a time, resumed, with time left; nothing finished is lost."""
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mmcluspro.version import __version__

from .records import Run, Store

ETA = re.compile(r'eta: (?:(\d+) days?, )?(\d+):(\d\d):(\d\d)')


def command(run: Run, tools: Path, work_dir: Path) -> list[str]:
    """What a user would type for a run."""
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


def validations(work_dir: Path) -> list[dict[str, float]]:
    """Metrics of each validation, by ``step``; of a resumed epoch the last ones."""
    entries = {}
    for path in sorted(work_dir.glob('*/vis_data/scalars.json')):
        for line in path.read_text(encoding='utf-8').splitlines():
            entry = json.loads(line)
            if 'czsl/auc' in entry:
                entries[entry.get('step', 0)] = {
                    key: value for key, value in entry.items()
                    if key.startswith('czsl') or key == 'step'}
    return [entries[step] for step in sorted(entries)]


def validation_fields(work_dir: Path) -> dict[str, Any]:
    """What a record keeps of validation: the best epoch, and the closed-world AUC of all."""
    entries = validations(work_dir)
    if not entries:
        return dict(val_metrics={}, val_auc=[])
    return dict(val_metrics=max(entries, key=lambda entry: entry['czsl/auc']),
                val_auc=[round(entry['czsl/auc'], 3) for entry in entries])


def time_left(log: Path) -> float | None:
    """Seconds that mmengine's log gives a training, from its last 8 kB."""
    with open(log, 'rb') as file:
        file.seek(max(0, log.stat().st_size - 8192))
        found = ETA.findall(file.read().decode(errors='replace'))
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found[-1])
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def clock(seconds: float) -> str:
    """For example '1 h 05 min', '12 min' or '40 s'."""
    if seconds < 100:
        return f'{seconds:.0f} s'
    minutes = round(seconds / 60)
    return f'{minutes // 60} h {minutes % 60:02d} min' if minutes >= 60 else f'{minutes} min'


def why(log: Path) -> str:
    """The message of a failed run: its last line that says so, or its last line."""
    lines = [line for line in log.read_text(errors='replace').splitlines() if line.strip()]
    said = [line for line in lines if re.match(r'(error:|\w*(Error|Exception):)', line)]
    return (said or lines or ['it printed nothing'])[-1].strip()


@dataclass
class Active:
    """A run at work."""
    run: Run
    process: subprocess.Popen
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
    """

    def __init__(self, store: Store, tools: Path, work: Path, jobs: int = 1, gpus: int = 0,
                 say: Callable[[str], None] | None = None, interval: float = 60.0) -> None:
        self.store, self.tools, self.work = store, tools, work
        self.jobs, self.gpus, self.interval = jobs, gpus, interval
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
        try:
            while waiting or self.active:
                while waiting and len(self.active) < self.jobs:
                    self._start(waiting.popleft())
                time.sleep(0.1)
                for job in [job for job in self.active if job.process.poll() is not None]:
                    self.active.remove(job)
                    self._finish(job, len(waiting))
                if self.active and time.time() - spoken > self.interval:
                    spoken = time.time()
                    self.say(f'  at work: {", ".join(job.run.name for job in self.active)}; '
                             + self._left(len(waiting)))
        finally:
            self._stop()
        return self.failed

    def _start(self, run: Run) -> None:
        work_dir = self.work / run.name
        self._set_aside(run, work_dir)
        work_dir.mkdir(parents=True, exist_ok=True)
        slot = min(set(range(self.jobs)) - {job.slot for job in self.active})
        env = dict(os.environ)
        env.setdefault('OMP_NUM_THREADS', str(max(1, (os.cpu_count() or 1) // self.jobs)))
        if self.gpus > 1:
            env.setdefault('CUDA_VISIBLE_DEVICES', str(slot % self.gpus))
        words = command(run, self.tools, work_dir)
        log = open(work_dir / 'output.log', 'a', encoding='utf-8')  # noqa: SIM115
        log.write(f'$ {shlex.join(words)}\n')
        log.flush()
        process = subprocess.Popen(words, stdout=log, stderr=log, env=env)
        self.active.append(Active(run, process, log, work_dir, slot, time.time()))

    def _set_aside(self, run: Run, work_dir: Path) -> None:
        """A broken run of another config must not be resumed with this one."""
        note = work_dir / 'run.json'
        if note.exists() and json.loads(note.read_text())['fingerprint'] != run.fingerprint:
            old = work_dir.with_name(f'{work_dir.name}.{int(note.stat().st_mtime)}')
            work_dir.rename(old)
            self.say(f'  {run.name}: an unfinished run of another config is kept as {old}')
        if not note.exists():
            work_dir.mkdir(parents=True, exist_ok=True)
            note.write_text(json.dumps(dict(seconds=0, fingerprint=run.fingerprint)))

    def _finish(self, job: Active, waiting: int) -> None:
        job.log.close()
        seconds = self._account(job)
        metrics = job.work_dir / 'test_metrics.json'
        done = self.total - waiting - len(self.active)
        if job.process.returncode != 0 or not metrics.exists():
            message = f'{why(job.work_dir / "output.log")} (log: {job.work_dir / "output.log"})'
            self.failed[job.run.name] = message
            self.say(f'[{done}/{self.total}] FAILED {job.run.name}: {message}')
            return
        self.durations.append(seconds)
        record = self.record(job.run, job.work_dir, seconds)
        auc = [f'{record["metrics"][key]:.2f} {world}' for key, world in (
            ('czsl/auc', 'closed'), ('czsl_open/auc', 'open')) if key in record['metrics']]
        self.say(f'[{done}/{self.total}] {job.run.name}: AUC {", ".join(auc)}, in {clock(seconds)}'
                 + (f'; {self._left(waiting)}' if waiting or self.active else ''))

    def record(self, run: Run, work_dir: Path, seconds: float) -> dict[str, Any]:
        """Saves what a finished run measured."""
        self.store.save(
            run, commit=self.commit, seconds=round(seconds),
            metrics=json.loads((work_dir / 'test_metrics.json').read_text()),
            **validation_fields(work_dir))
        return self.store.records[run.key]

    def _account(self, job: Active) -> float:
        """Seconds of a run, with those of its broken attempts."""
        note = job.work_dir / 'run.json'
        content = json.loads(note.read_text())
        content['seconds'] += time.time() - job.start
        note.write_text(json.dumps(content))
        return content['seconds']

    def _left(self, waiting: int) -> str:
        """Time left, from the logs of the runs at work and the durations of finished ones."""
        now = time.time()
        left = [time_left(job.work_dir / 'output.log') for job in self.active]
        whole = [now - job.start + eta for job, eta in zip(self.active, left) if eta is not None]
        # A zero-shot test is no measure of a training.
        typical = max([*self.durations, *whole], default=None)
        if typical is None:
            return 'time left not known yet'
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
            self._account(job)
        self.active = []
