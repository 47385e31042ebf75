"""Files: names stay below their folder, contents are written whole, and one function deletes.

A file gets its name only when it is complete and on disk. The unfinished file is in the same folder
and has host and process in its name, so several processes may write the same file. The last one to
finish wins, or the first with ``keep_first``.
"""
from __future__ import annotations

import json
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

LONGEST = 4096  # characters of a path; no system takes more


def leaves(name: str) -> bool:
    """Whether a name, as written, could lead out of a folder or is not a file name."""
    if len(name) > LONGEST:
        return True
    parts = re.split(r'[/\\]', name)
    return (not name or name[0] in '/\\' or '..' in parts or '\0' in name
            or re.match(r'[A-Za-z]:', name) is not None)


def inside(root: str | Path, name: str) -> Path:
    """``root / name``; refused if it leads out of ``root``, also through links.

    Args:
        root (str | Path): A folder; it may itself be a link.
        name (str): A relative name that came from a file.

    Returns:
        Path: Not resolved; it need not exist.
    """
    path = Path(root) / name
    if leaves(name) or not within(root, path):
        raise ValueError(f'The name {name[:100]!r} leaves the folder {root}; names in data are '
                         'relative and stay below it, also through links.')
    return path


def within(root: str | Path, path: str | Path) -> bool:
    """Whether a path stays below a folder when all links are followed."""
    top, real = os.path.realpath(root), os.path.realpath(path)
    return real == top or real.startswith(top.rstrip(os.sep) + os.sep)


def remove(folder: str | Path, path: str | Path, backend: Any = None) -> None:
    """Deletes what is directly inside a folder; every removal of the package comes here.

    What is gone already is no error. Of a link, only the link goes.

    Args:
        folder (str | Path): The folder that the caller writes; it may itself be a link.
        path (str | Path): A file, or a folder with all that is in it.
        backend (Any): mmengine's, for a folder such as ``s3://…``. Defaults to None: the disk.

    Raises:
        ValueError: The path is elsewhere, also through links.
    """
    parent, name = os.path.split(str(path))
    remote = '://' in str(folder)
    there, here = (str(part).rstrip('/') if remote else os.path.realpath(part)
                   for part in (parent, folder))
    if there != here or leaves(name) or name == '.':
        raise ValueError(f'{str(path)[:200]!r} is not removed: it is not directly inside '
                         f'{folder}, the only place where files are removed here.')
    if remote:
        backend.remove(str(path))
    elif os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)


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


@contextmanager
def writable(path: str | Path) -> Iterator[Path]:
    """As :func:`atomic_path` for a file that the user asked for: its folder is made.

    Args:
        path (str | Path): The file to write.

    Yields:
        Path: The file to write to, with the same suffix.

    Raises:
        ValueError: The file cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path, keep_suffix=True) as part:
            yield part
    except OSError as error:
        raise ValueError(
            f'{path} cannot be written ({error.strerror or error}). Choose another place.'
        ) from None


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


PACKAGE = Path(__file__).resolve().parents[1]
WEIGHTS = PACKAGE / 'models' / 'weights'


def configs_folder() -> Path:
    """Folder of the shipped configs: that of the installed package, or of the repository."""
    installed = PACKAGE / '.mim' / 'configs'
    return installed if installed.is_dir() else PACKAGE.parent / 'configs'


def shipped_model(name: str) -> Path | None:
    """The file of a model that comes with the package, such as ``'cluspro_shapes'``."""
    path = WEIGHTS / f'{name}.safetensors'
    return path if name.isidentifier() and path.is_file() else None


def weights_file(name: str) -> Path:
    """Path that a ``pretrained`` field names: a file of the package, or one of the user.

    Args:
        name (str): ``'tiny_clip'`` or a path.
    """
    return WEIGHTS / 'tiny_clip.pt' if name == 'tiny_clip' else Path(name).expanduser()
