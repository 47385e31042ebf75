"""Names from data stay below their folder: the one place that turns a name into a path."""
from __future__ import annotations

import os
import re
from pathlib import Path

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
