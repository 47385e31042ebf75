"""Locks that are held by one process, and that the system releases when it ends for any reason."""
import errno
import json
import os
import platform
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .files import remove

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PAUSE = 0.1  # seconds between two looks at a lock that is waited for


@contextmanager
def held(path: str | Path, what: str, otherwise: str, wait: bool = False) -> Iterator[None]:
    """Holds a lock file while the block runs; its folder is made if it is not there.

    The lock is a POSIX record lock: forked workers, which may outlive a killed process, do not
    inherit it, and NFS servers and parallel file systems share it between machines if they are
    mounted with locks (Lustre: ``flock``). Where the file system has no locks, the file alone is
    looked at: a process of this machine that is alive counts. The file is removed at the end.

    Args:
        path (str | Path): The lock file, which holds nothing else.
        what (str): What it stands for, such as 'The work folder runs', for messages.
        otherwise (str): What else the user can do, such as 'choose another folder'.
        wait (bool): Wait until the other one is done, instead of refusing. Defaults to False.

    Raises:
        ValueError: Names the process that holds it, or why it cannot be held.
    """
    path = Path(path).absolute()
    file = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while file is None or not _is(file, path):  # the one who held it removed the file
            file = open(path, 'a+', encoding='utf-8', opener=_open_plain)  # noqa: SIM115
            while not _take(file):
                if not wait:
                    with file:
                        raise ValueError(_busy(what, file, otherwise))
                time.sleep(PAUSE)
    except OSError as error:
        raise ValueError(f'{what} cannot be used ({error.strerror}: {error.filename}); '
                         f'{otherwise}.') from error
    with file:
        file.truncate(0)
        json.dump(dict(host=platform.node(), pid=os.getpid(),
                       since=time.strftime('%Y-%m-%d %H:%M:%S'), command=' '.join(sys.argv)), file)
        file.flush()
        try:
            yield
        finally:
            with suppress(OSError):  # the folder may be gone
                remove(path.parent, path)


def work_lock(folder: str | Path) -> AbstractContextManager[None]:
    """Admits one training to a work folder, see :func:`held`."""
    return held(Path(folder) / '.training.lock', f'The work folder {folder}',
                'choose another folder with --work-dir')


def _open_plain(path: str, flags: int) -> int:
    """Follows no link: the file is emptied, and a folder from elsewhere may link to another's."""
    number = os.open(path, flags | getattr(os, 'O_NOFOLLOW', 0) | getattr(os, 'O_NONBLOCK', 0),
                     0o666)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, 'not a plain file', path)
    return number


def _take(file: IO[str]) -> bool:
    """Locks an open file for this process without waiting; False while another one holds it."""
    if fcntl is not None:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            pass  # a file system without locks
        else:
            return True
    return not _alive(_holder(file))


def _is(file: IO[str], path: Path) -> bool:
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return True
    file.close()
    return False


def _holder(file: IO[str]) -> dict[str, Any]:
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


def _busy(what: str, file: IO[str], otherwise: str) -> str:
    holder = _holder(file)
    who = 'another process'
    if holder:
        who = (f'process {holder.get("pid")} on {holder.get("host")} (since '
               f'{holder.get("since")}: {holder.get("command")})')
    return f'{what} is in use by {who}. Wait for it, end it, or {otherwise}.'
