"""Names from data stay below their folder: the one place that turns a name into a path.

Also the one place that deletes.
"""
from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

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
