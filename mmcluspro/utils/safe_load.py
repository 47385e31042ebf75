"""Reads checkpoints without running code.

mmengine 0.10 calls ``torch.load`` with torch's default, which refuses every training checkpoint,
because they hold mmengine's own ``HistoryBuffer``. The loaders here read tensors, plain containers
(including argparse's), numpy arrays and that one class, and nothing else.

Nothing is registered with mmengine here; :mod:`mmcluspro.engine.checkpoint` does that on request.
"""
import argparse
import io
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.fileio import get as read_bytes
from mmengine.logging import HistoryBuffer

from mmcluspro.errors import FileError, reason_of

from .archive import check_archive, check_named_digest
from .digest import file_digest, sha256
from .download import download
from .pickles import load_pickle, refusal
from .tensor_file import SUFFIX, read_tensor_bytes

HTTP = ('http://', 'https://')
BACKEND = re.compile(r'(\S+:)?(s3|petrel)://')
MapLocation = str | torch.device | Callable | None


def _history_method(file: str, owner: type, name: str) -> Any:
    """Replaces ``getattr``, with which HistoryBuffer pickles its methods."""
    if owner is not HistoryBuffer or name not in ('min', 'max', 'current', 'mean'):
        raise refusal(file, 'builtins.getattr')
    return getattr(HistoryBuffer, name)


def _allowed(name: str) -> dict[str, Any]:
    """Returns what a file of this name may contain besides tensors, by its pickled name."""
    found: dict[str, Any] = {
        'mmengine.logging.history_buffer.HistoryBuffer': HistoryBuffer,
        'builtins.getattr': partial(_history_method, name),
        # A bag of settings, in the training checkpoints of DINO and others.
        'argparse.Namespace': argparse.Namespace,
        'numpy.ndarray': np.ndarray,
        'numpy.dtype': np.dtype,
    }
    # numpy 2 renamed the module; files of either era are read by either.
    for core in ('numpy._core', 'numpy.core'):
        found[f'{core}.multiarray._reconstruct'] = np.zeros(1).__reduce__()[0]
        found[f'{core}.multiarray.scalar'] = np.float64(0).__reduce__()[0]
    for code in '?bBhHiIlLqQefdSU':
        kind = type(np.dtype(code))
        found[f'{kind.__module__}.{kind.__name__}'] = kind
    return found


def safe_load(file: Any, map_location: MapLocation = 'cpu', name: str | None = None) -> Any:
    """``torch.load`` that never runs code from the file.

    Args:
        file: Path or binary file object.
        map_location: As in ``torch.load``. Defaults to 'cpu'.
        name (str | None): Name of the file for messages. Defaults to the path.

    Returns:
        Any: What was saved: tensors in plain containers, and the training
        history of mmengine.
    """
    name = name or str(file)
    check_archive(file, name)
    return _without_code(_load(file, map_location, name))


def _without_code(content: Any) -> Any:
    """Drops ``meta.config``, which mmengine's ``Runner.resume`` would execute as Python."""
    meta = content.get('meta') if isinstance(content, dict) else None
    if isinstance(meta, dict):
        meta.pop('config', None)
    return content


def _load(file: Any, map_location: MapLocation, name: str) -> Any:
    try:
        pairs: list[Any] = [(value, key) for key, value in _allowed(name).items()]
        with torch.serialization.safe_globals(pairs):
            return load_pickle(file, name, map_location)
    except FileError:
        raise
    except Exception as error:  # bytes that are not a pickle raise almost anything
        raise FileError(name, *_unreadable(error)) from error


def _unreadable(error: BaseException) -> tuple[str, str]:
    reason = reason_of(error)
    # Of the others the text is a number or a letter, and torch's advice is to run the file.
    if not isinstance(error, (RuntimeError, OSError)) or 'weights_only' in reason:
        reason = type(error).__name__
    return (f'it cannot be read as a checkpoint ({reason})',
            'It is damaged, or not a file that torch.save wrote: copy it again, or give another '
            'one.')


def load_from_local(filename: str, map_location: MapLocation = None) -> Any:
    """Loads a checkpoint from disk."""
    path = Path(filename).expanduser()
    if not path.is_file():
        beside = sorted(item.name for item in path.parent.glob('*')
                        if item.suffix in ('.pth', SUFFIX))[:5]
        there = f' There: {", ".join(beside)}.' if beside else ''
        raise FileNotFoundError(f'The checkpoint {filename} does not exist.{there}')
    check_named_digest(path)
    if path.suffix == SUFFIX:
        return read_tensor_bytes(path.read_bytes(), filename)
    return safe_load(str(path), map_location)


def load_from_http(filename: str, map_location: MapLocation = None, model_dir: str | None = None,
                   **_: Any) -> Any:
    """Downloads a checkpoint once per machine, then loads it from disk."""
    path = download(filename, model_dir)
    try:
        return load_from_local(str(path), map_location)
    except FileError as error:
        raise FileError(path, error.problem, f'It is the copy of {filename}: delete it, and it is '
                        f'downloaded again. {error.remedy}', error.place) from None


def load_from_backend(filename: str, map_location: MapLocation = None, **_: Any) -> Any:
    """Loads a checkpoint through one of mmengine's file backends (s3, petrel)."""
    data = read_bytes(filename)
    if filename.endswith(SUFFIX):
        return read_tensor_bytes(data, filename)
    return safe_load(io.BytesIO(data), map_location, name=filename)


def load_checkpoint(filename: str | Path, map_location: MapLocation = 'cpu') -> Any:
    """Loads a checkpoint from a file, an http(s) address or an s3 address.

    Args:
        filename (str | Path): Path or address.
        map_location: As in ``torch.load``. Defaults to 'cpu'.
    """
    name = str(filename)
    if name.startswith(HTTP):
        return load_from_http(name, map_location)
    if BACKEND.match(name):
        return load_from_backend(name, map_location)
    return load_from_local(name, map_location)


def checkpoint_digest(filename: str | Path) -> str:
    """Digest of what a name for :func:`load_checkpoint` leads to: an address can change its file.

    An http(s) address stands for its copy on this machine.
    """
    name = str(filename)
    if BACKEND.match(name):
        return sha256(read_bytes(name), digits=32)
    return file_digest(download(name) if name.startswith(HTTP) else Path(name).expanduser())
