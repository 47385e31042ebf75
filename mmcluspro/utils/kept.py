"""Files and features kept on this machine by their content, for all runs of its user.

They lie beside the downloads of torch: ``TORCH_HOME`` moves both.
"""
from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch

from .atomic import atomic_path
from .digest import file_digest
from .download import PUBLISHED, download


def kept_folder(kind: str) -> Path:
    """Folder of what is kept; ``kind`` is 'weights' or 'features'."""
    return Path(torch.hub.get_dir()) / 'mmcluspro' / kind


def keep_file(path: str | Path) -> str:
    """Keeps a file of weights: a second name for it, or a copy on another disk.

    Returns:
        str: Its SHA-256, by which :func:`find_kept` finds it.
    """
    digest = file_digest(path, 'sha256')
    target = kept_folder('weights') / digest
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(Path(path).resolve(), target)
        except OSError:
            with atomic_path(target) as part:
                shutil.copyfile(path, part)
    return digest


def find_kept(digest: str) -> Path | None:
    """The file with this SHA-256: kept before, or one of the published ones, which are fetched.

    Args:
        digest (str): 64 hexadecimal digits.

    Returns:
        Path | None: None if there is none, or its content has changed.
    """
    path = kept_folder('weights') / digest
    if path.is_file():
        return path if file_digest(path, 'sha256') == digest else None
    address = next((url for url, known in PUBLISHED.items() if known == digest), None)
    return None if address is None else download(address)
