"""One training per work folder."""
import errno
import json
import os
import platform
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mmcluspro.utils.locks import take_lock

NAME = '.training.lock'


@contextmanager
def work_lock(folder: str | Path) -> Iterator[None]:
    """Holds the work folder while the block runs.

    The lock is a POSIX record lock: the system releases it when the process ends, however it
    ends, and NFS servers and parallel file systems share it between machines if they are mounted
    with locks (Lustre: ``flock``). Where the file system has no locks, the file alone is looked
    at: a process of this machine that is alive counts.

    Args:
        folder (str | Path): Made if it is not there.

    Raises:
        ValueError: Names the process that is at work there, or why the folder cannot be used.
    """
    path = Path(folder) / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, 'a+', encoding='utf-8', opener=_open_plain)  # noqa: SIM115
    except OSError as error:
        raise ValueError(f'The work folder {folder} cannot be used ({error.strerror}: '
                         f'{error.filename}). Choose another one with --work-dir.') from error
    with file:
        if not take_lock(file, otherwise=not _alive(_holder(file))):
            raise ValueError(_busy(folder, file))
        file.truncate(0)
        json.dump(dict(host=platform.node(), pid=os.getpid(), since=_now(),
                       command=' '.join(sys.argv)), file)
        file.flush()
        yield
        with suppress(OSError):  # the folder may be gone
            file.truncate(0)


def _open_plain(path: str, flags: int) -> int:
    """Follows no link: the file is emptied, and a folder from elsewhere may link to another's."""
    number = os.open(path, flags | getattr(os, 'O_NOFOLLOW', 0) | getattr(os, 'O_NONBLOCK', 0),
                     0o666)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, 'not a plain file', path)
    return number


def _holder(file: Any) -> dict[str, Any]:
    file.seek(0)
    try:
        found = json.load(file)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _alive(holder: dict[str, Any]) -> bool:
    """Whether the process is another one of this machine, and runs."""
    pid = holder.get('pid')
    if holder.get('host') != platform.node() or os.name != 'posix' or not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return pid != os.getpid()


def _busy(folder: str | Path, file: Any) -> str:
    holder = _holder(file)
    who = 'another process'
    if holder:
        who = (f'process {holder.get("pid")} on {holder.get("host")} (since '
               f'{holder.get("since")}: {holder.get("command")})')
    return (f'The work folder {folder} is in use by {who}. Wait for it, end it, or choose another '
            'folder with --work-dir.')


def _now() -> str:
    return time.strftime('%Y-%m-%d %H:%M:%S')
