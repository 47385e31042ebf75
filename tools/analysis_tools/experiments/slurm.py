"""Runs on a Slurm cluster: one job a run, which writes its own record."""
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from .records import Run
from .run_store import Store


def batch_command(run: Run, worker: list[str], log: Path, partition: str | None,
                  arguments: str) -> list[str]:
    """The ``sbatch`` line of a run.

    Args:
        run (Run): Gives the job its name.
        worker (list[str]): Command of the job.
        log (Path): Output of the job.
        partition (str, optional): As in ``sbatch -p``.
        arguments (str): Further flags of ``sbatch``.

    Returns:
        list[str]: The command.
    """
    place = ['--partition', partition] if partition else []
    return ['sbatch', '--parsable', '--job-name', run.name, '--output', str(log),
            '--open-mode', 'append', *place, *shlex.split(arguments), '--wrap',
            shlex.join(worker)]


class SlurmJobs:
    """Submits runs, unless they are in the queue already.

    Args:
        store (Store): Where the jobs put their records; the numbers of the
            jobs stand beside them.
        work (Path): Folder for the work folders of the runs.
        partition (str, optional): As in ``sbatch -p``. Defaults to None.
        arguments (str): Further flags of ``sbatch``. Defaults to ''.
        say (Callable): Prints a line. Defaults to ``print``.
    """

    def __init__(self, store: Store, work: Path, partition: str | None = None,
                 arguments: str = '', say: Callable[[str], None] = print) -> None:
        if shutil.which('sbatch') is None:
            raise ValueError('--launcher slurm needs the command sbatch, which is not on PATH. '
                             'Use --launcher none, or log in to a node of the cluster.')
        self.store, self.work = store, work
        self.partition, self.arguments, self.say = partition, arguments, say

    def __call__(self, runs: list[tuple[Run, list[str]]]) -> dict[str, str]:
        """Submits runs.

        Args:
            runs (list): Each with the command of its job.

        Returns:
            dict[str, str]: Message by the name of a run that was refused.
        """
        failed = {}
        for run, worker in runs:
            note = self.store.folder / f'{run.name}.job'
            number = note.read_text().strip() if note.exists() else ''
            try:
                state = queue_state(number) if number else ''
            except ValueError as error:
                failed[run.name] = str(error)
                self.say(f'FAILED {run.name}: {error}')
                continue
            if state:
                self.say(f'{run.name}: job {number} is {state}')
                continue
            log = self.work / run.name / 'slurm.log'
            log.parent.mkdir(parents=True, exist_ok=True)
            words = batch_command(run, worker, log, self.partition, self.arguments)
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                reason = done.stderr.strip() or done.stdout.strip()
                failed[run.name] = f'sbatch refused it: {reason}'
                self.say(f'FAILED {run.name}: {failed[run.name]}')
                continue
            number = done.stdout.strip().split(';')[0]
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(number + '\n')
            self.say(f'{run.name}: job {number}, log {log}')
        return failed


def queue_state(number: str) -> str:
    """What ``squeue`` says of a job, in lower case; '' where it knows none."""
    if shutil.which('squeue') is None:
        return ''
    done = subprocess.run(['squeue', '-h', '-j', number, '-o', '%T'], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0 and 'invalid job id' not in done.stderr.lower():
        raise ValueError(f'squeue did not say whether job {number} still runs '
                         f'({done.stderr.strip()}); nothing is submitted twice. Try again later.')
    return done.stdout.strip().lower()
