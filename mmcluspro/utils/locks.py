"""File locks, which the system releases when a process ends for any reason."""
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def take_lock(file: IO[Any], otherwise: bool = True) -> bool:
    """Locks an open file for this process, without waiting.

    It is a POSIX record lock: forked children do not inherit it, and NFS servers and parallel file
        systems share it between machines if they are mounted with locks.

    Args:
        file (IO): Open for writing; the lock ends with it.
        otherwise (bool): Result on systems or file systems without locks. Defaults to True.

    Returns:
        bool: False while another process holds it.
    """
    if fcntl is None:
        return otherwise
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # a file system without locks
        return otherwise
    return True
