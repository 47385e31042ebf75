"""Reads checkpoints without running code.

mmengine 0.10 calls ``torch.load`` with torch's default: before torch 2.6 that unpickles whatever
the file says, from 2.6 on it refuses every training checkpoint, because they hold mmengine's own
``HistoryBuffer``. The loaders here read tensors, plain containers (including argparse's), numpy
arrays and that one class, and nothing else, on every torch from 2.1 on.

Nothing is registered with mmengine here; :mod:`mmcluspro.engine.checkpoint` does that on request.
"""
import argparse
import codecs
import io
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from mmengine.fileio import get as read_bytes
from mmengine.logging import HistoryBuffer

from mmcluspro.errors import FileError, reason_of

from .archive import check_archive, check_named_digest
from .download import download

MapLocation = str | torch.device | Callable | None


def _history_method(owner: type, name: str) -> Any:
    """Replaces ``getattr``, with which HistoryBuffer pickles its methods."""
    if owner is not HistoryBuffer or name not in ('min', 'max', 'current', 'mean'):
        raise pickle.UnpicklingError(f'Unsupported global: GLOBAL builtins.getattr of {name}')
    return getattr(HistoryBuffer, name)


def _allowed() -> dict[str, Any]:
    """Returns what a file may contain besides tensors, by its pickled name."""
    found: dict[str, Any] = {
        'mmengine.logging.history_buffer.HistoryBuffer': HistoryBuffer,
        'builtins.getattr': _history_method,
        'builtins.set': set,
        # A bag of settings, in the training checkpoints of DINO and others.
        'argparse.Namespace': argparse.Namespace,
        'numpy.ndarray': np.ndarray,
        'numpy.dtype': np.dtype,
        '_codecs.encode': codecs.encode,
    }
    # numpy 2 renamed the module; files of either era are read by either.
    for core in ('numpy._core', 'numpy.core'):
        found[f'{core}.multiarray._reconstruct'] = np.zeros(1).__reduce__()[0]
        found[f'{core}.multiarray.scalar'] = np.float64(0).__reduce__()[0]
    for code in '?bBhHiIlLqQefdSU':
        kind = type(np.dtype(code))
        found[f'{kind.__module__}.{kind.__name__}'] = kind
    return found


class _TensorUnpickler(pickle._Unpickler):
    """``weights_only`` in Python for torch < 2.6, which cannot be told to allow a class."""

    def find_class(self, module: str, name: str) -> Any:
        full = f'{module}.{name}'.replace('__builtin__.', 'builtins.')
        allowed = _allowed()
        if full in allowed:
            return allowed[full]
        if full in ('collections.OrderedDict', 'torch.Size', 'torch.device'):
            return {'OrderedDict': OrderedDict, 'Size': torch.Size, 'device': torch.device}[name]
        if module == 'torch._utils' and name.startswith('_rebuild_'):
            return getattr(torch._utils, name)
        if module == 'torch' and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if module in ('torch', 'torch.storage') and name.endswith('Storage'):
            return getattr(torch.storage if name == 'UntypedStorage' else torch, name)
        raise pickle.UnpicklingError(f'Unsupported global: GLOBAL {full}')


_TENSORS_ONLY = SimpleNamespace(
    __name__='mmcluspro_tensors_only',
    Unpickler=_TensorUnpickler,
    load=lambda file, **kwargs: _TensorUnpickler(file, **kwargs).load())


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
        if _torch_version() >= (2, 6):
            pairs: list[Any] = [(value, key) for key, value in _allowed().items()]
            with torch.serialization.safe_globals(pairs):
                return torch.load(file, map_location=map_location, weights_only=True)
        return torch.load(
            file, map_location=map_location, pickle_module=_TENSORS_ONLY, weights_only=False)
    except pickle.UnpicklingError as error:
        culprit = re.search(r'(?:GLOBAL|class) ([\w.]+)', str(error))
        if culprit:
            raise FileError(name, *_refusal(culprit[1])) from None
        raise FileError(name, *_unreadable(error)) from error
    except Exception as error:  # bytes that are not a pickle raise almost anything
        raise FileError(name, *_unreadable(error)) from error


def _torch_version() -> tuple[int, int]:
    major, minor = torch.__version__.split('.')[:2]
    return int(major), int(minor)


def _unreadable(error: BaseException) -> tuple[str, str]:
    reason = reason_of(error)
    # Of the others the text is a number or a letter, and torch's advice is to run the file.
    if not isinstance(error, (RuntimeError, OSError)) or 'weights_only' in reason:
        reason = type(error).__name__
    return (f'it cannot be read as a checkpoint ({reason})',
            'It is damaged, or not a file that torch.save wrote: copy it again, or give another '
            'one.')


def _refusal(culprit: str) -> tuple[str, str]:
    return (f'it was refused, because it names {culprit!r}, which is neither a tensor nor plain '
            'data: reading it could run code',
            'Do not use a checkpoint from a source that you do not trust. If the file is your own '
            'and the class is yours, allow it before loading with '
            'torch.serialization.add_safe_globals([TheClass]).')


def load_from_local(filename: str, map_location: MapLocation = None) -> Any:
    """Loads a checkpoint from disk."""
    path = Path(filename).expanduser()
    if not path.is_file():
        beside = sorted(item.name for item in path.parent.glob('*.pth'))[:5]
        there = f' There: {", ".join(beside)}.' if beside else ''
        raise FileNotFoundError(f'The checkpoint {filename} does not exist.{there}')
    check_named_digest(path)
    return safe_load(str(path), map_location)


def load_from_http(filename: str, map_location: MapLocation = None, model_dir: str | None = None,
                   **_: Any) -> Any:
    """Downloads a checkpoint once per machine, then loads it from disk."""
    return load_from_local(str(download(filename, model_dir)), map_location)


def load_from_backend(filename: str, map_location: MapLocation = None, **_: Any) -> Any:
    """Loads a checkpoint through one of mmengine's file backends (s3, petrel)."""
    return safe_load(io.BytesIO(read_bytes(filename)), map_location, name=filename)


def load_checkpoint(filename: str | Path, map_location: MapLocation = 'cpu') -> Any:
    """Loads a checkpoint from a file, an http(s) address or an s3 address.

    Args:
        filename (str | Path): Path or address.
        map_location: As in ``torch.load``. Defaults to 'cpu'.
    """
    name = str(filename)
    if name.startswith(('http://', 'https://')):
        return load_from_http(name, map_location)
    if re.match(r'(\S+:)?(s3|petrel)://', name):
        return load_from_backend(name, map_location)
    return load_from_local(name, map_location)
