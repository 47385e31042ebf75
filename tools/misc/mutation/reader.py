"""A reader under test, and the content of files as a digest."""
from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Reader:
    """A reader under test.

    Attributes:
        make (Callable): Folder → the sample file, written there.
        read (Callable): File → its content.
        guarded (bool): Whether a checksum of the file covers its content: then nothing may be
            accepted with other content.
        types (Callable, optional): Folder, random generator → a file whose container is sound and
            whose content has wrong types.
    """
    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    guarded: bool = False
    types: Callable[[Path, np.random.Generator], Path] | None = None


def digest(value: Any) -> str:
    """A text that is the same for the same content."""
    found = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, Tensor):
            part = part.detach().contiguous().view(torch.uint8).numpy() if part.numel() else (
                np.zeros(0))
        if isinstance(part, np.ndarray):
            found.update(f'{part.dtype} {part.shape}'.encode() + np.ascontiguousarray(part).data)
        elif isinstance(part, dict):
            for key in sorted(part, key=str):
                found.update(repr(key).encode())
                add(part[key])
        elif isinstance(part, (list, tuple)):
            found.update(f'[{len(part)}'.encode())
            for item in part:
                add(item)
        else:
            found.update(repr(part).encode())

    add(value)
    return found.hexdigest()
