"""Writes files atomically: a file gets its name only when it is complete and on disk.

The unfinished file is in the same folder and has host and process in its name, so several processes
may write the same file. The last one to finish wins, or the first with ``keep_first``.
"""
import json
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from .inside import remove

HOST = platform.node().split('.')[0]
PART = re.compile(r'.+\.([^.]*)-(\d+)-[0-9a-f]{8}\.part')
SILENT = 3600  # seconds without a write after which an unfinished file counts as abandoned


@contextmanager
def atomic_path(path: str | Path, keep_first: bool = False,
                keep_suffix: bool = False) -> Iterator[Path]:
    """Yields a temporary name to write to; when the block ends, the file gets its real name.

    If the block raises, the temporary file is deleted and ``path`` does not change.

    Args:
        path (str | Path): Name of the finished file. Its folder must exist.
        keep_first (bool): Keep a file that exists by then. Defaults to False.
        keep_suffix (bool): End the temporary name like ``path``, for libraries that choose the
            format by the suffix. Defaults to False.
    """
    path = Path(path)
    part = path.with_name(f'{path.name}.{HOST}-{os.getpid()}-{uuid4().hex[:8]}.part')
    if keep_suffix:
        part = part.with_name(f'.{part.name}{path.suffix}')
    _touch(part, path)
    try:
        yield part
        _flush(part)
        if keep_first:
            _link(part, path)
        else:
            part.replace(path)
        _flush_name(path)
    finally:
        remove(path.parent, part)


def _touch(part: Path, path: Path) -> None:
    """Fails before the work, not after it, with the name that the user gave."""
    try:
        part.touch()
    except OSError as error:
        raise OSError(error.errno, f'{path} cannot be written ({error.strerror}). Choose a folder '
                      'that exists, has room and may be written to') from None


def write_bytes(path: str | Path, content: bytes, keep_first: bool = False) -> None:
    """Writes a whole file atomically."""
    with atomic_path(path, keep_first) as part:
        part.write_bytes(content)


def write_text(path: str | Path, content: str, keep_first: bool = False) -> None:
    """Writes a text file (UTF-8, line ends as they are) atomically."""
    write_bytes(path, content.encode(), keep_first)


def write_json(path: str | Path, content: Any, keep_first: bool = False, **options: Any) -> None:
    """Writes a JSON file atomically; ``options`` are those of :func:`json.dumps`."""
    write_text(path, json.dumps(content, **{'indent': 1, 'ensure_ascii': False, **options}),
               keep_first)


def is_abandoned(part: Path) -> bool:
    """Whether nobody writes this unfinished file: its process is dead, or it is old."""
    match = PART.fullmatch(part.name)
    if match and match[1] == HOST and os.name == 'posix':  # elsewhere os.kill would kill
        try:
            os.kill(int(match[2]), 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # the process of another user
    with suppress(FileNotFoundError):
        return time.time() - part.stat().st_mtime > SILENT
    return False


def _flush(part: Path) -> None:
    """Waits until the content is on the disk."""
    with part.open('rb+') as file:
        os.fsync(file.fileno())


def _flush_name(path: Path) -> None:
    """Waits until the new name is on the disk, where folders can be flushed."""
    with suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _link(part: Path, path: Path) -> None:
    try:
        os.link(part, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        part.replace(path)
