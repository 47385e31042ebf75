"""Reads the work folder of a run: notes, logs, validations."""
import fcntl
import json
import re
import signal
from pathlib import Path
from typing import IO, Any

from mmcluspro.utils.files import write_text

ETA = re.compile(r'eta: (?:(\d+) days?, )?(\d+):(\d\d):(\d\d)')


class Note:
    """What is known of a run while it has no record: ``run.json`` in its work folder.

    Args:
        work_dir (Path): Folder of the run.
    """

    def __init__(self, work_dir: Path) -> None:
        self.path = work_dir / 'run.json'
        try:
            self.content = json.loads(self.path.read_text(encoding='utf-8'))
        except (FileNotFoundError, ValueError):  # none, or half a one of another program
            self.content = {}

    def begin(self, fingerprint: dict[str, str], commit: str) -> None:
        """Before an attempt; the commits of all attempts are kept."""
        commits = self.content.get('commits', [])
        self._write(fingerprint=fingerprint, seconds=self.content.get('seconds', 0),
                    commits=[*commits, *([] if commit in commits else [commit])])

    def end(self, seconds: float) -> float:
        """After an attempt; returns the seconds of all attempts."""
        self._write(**{**self.content, 'seconds': self.content.get('seconds', 0) + seconds})
        return self.content['seconds']

    def _write(self, **content: Any) -> None:
        self.content = content
        write_text(self.path, json.dumps(content))


def open_log(work_dir: Path) -> IO[str]:
    """Opens the log of a run for its process, which holds a lock on it while it lives.

    The lock is inherited with the output, so that a training that outlives its parent is noticed.

    Args:
        work_dir (Path): Folder of the run.

    Returns:
        IO[str]: Open for appending.
    """
    log = open(work_dir / 'output.log', 'a', encoding='utf-8')  # noqa: SIM115
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.close()
        raise ValueError(
            f'another process is at work in {work_dir}: wait for it, or end it.') from None
    return log


def validations(work_dir: Path) -> list[dict[str, float]]:
    """Metrics of each validation, by ``step``; of a resumed epoch the last ones."""
    entries = {}
    for path in sorted(work_dir.glob('*/vis_data/scalars.json')):
        for line in path.read_text(encoding='utf-8').splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:  # the last line of an attempt that was killed
                continue
            if 'czsl/auc' in entry:
                entries[entry.get('step', 0)] = {
                    key: value for key, value in entry.items()
                    if key.startswith('czsl') or key == 'step'}
    return [entries[step] for step in sorted(entries)]


def validation_fields(work_dir: Path) -> dict[str, Any]:
    """What a record keeps of validation.

    Args:
        work_dir (Path): Folder of the run.

    Returns:
        dict[str, Any]: ``val_metrics`` of the epoch that was tested (``step``), which is the best
        one of those that were validated, and the closed-world ``val_auc`` of all of them. By our
        rule only the last epoch is validated.
    """
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


def failure(log: Path, code: int = 1) -> str:
    """The message of a failed process: its last line that says so, or its last line.

    Args:
        log (Path): Output of all attempts; each starts with ``$`` and its command.
        code (int): Exit code of the last one. Defaults to 1.

    Returns:
        str: One line.
    """
    if code < 0:
        hint = ': out of memory?' if code == -signal.SIGKILL else ''
        return f'it was killed by {signal.Signals(-code).name}{hint}'
    lines = [line for line in log.read_text(errors='replace').splitlines() if line.strip()]
    begin = max((number for number, line in enumerate(lines) if line.startswith('$ ')), default=-1)
    lines = lines[begin + 1:]
    said = [line for line in lines if re.match(r'(error:|\w*(Error|Exception):)', line)]
    return (said or lines or ['it printed nothing'])[-1].strip()
