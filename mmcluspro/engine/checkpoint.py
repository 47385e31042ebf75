"""Reads checkpoints without running code.

mmengine 0.10 calls ``torch.load`` with torch's default: before torch 2.6 that
unpickles whatever the file says, from 2.6 on it refuses every training
checkpoint, because they hold mmengine's own ``HistoryBuffer``. The loaders
here read tensors, plain containers (argparse's among them), numpy arrays and
that one class, and nothing else, on every torch from 2.1 on; ``Runner.load_checkpoint`` and
``--resume`` both go through them.
"""
import argparse
import codecs
import io
import pickle
import re
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from mmengine.dist import barrier, master_only
from mmengine.fileio import get as read_bytes
from mmengine.logging import HistoryBuffer
from mmengine.runner.checkpoint import CheckpointLoader

MapLocation = str | torch.device | Callable | None


def _history_method(owner: type, name: str) -> Any:
    """Stands in for ``getattr``, by which HistoryBuffer pickles its methods."""
    if owner is not HistoryBuffer or name not in ('min', 'max', 'current', 'mean'):
        raise pickle.UnpicklingError(f'Unsupported global: GLOBAL builtins.getattr of {name}')
    return getattr(HistoryBuffer, name)


def _allowed() -> dict[str, Any]:
    """Returns what may stand in a file beside tensors, by its pickled name."""
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


class _TensorUnpickler(pickle.Unpickler):
    """``weights_only`` for torch < 2.6, which cannot be taught a class."""

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
        name (str | None): What messages call the file. Defaults to the path.

    Returns:
        Any: What was saved: tensors in plain containers, and the training
        history of mmengine.
    """
    name = name or str(file)
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
            raise ValueError(_refusal(name, culprit[1])) from None
        raise ValueError(_unreadable(name, error)) from error
    except Exception as error:  # bytes that are no pickle raise almost anything
        raise ValueError(_unreadable(name, error)) from error


def _torch_version() -> tuple[int, int]:
    major, minor = torch.__version__.split('.')[:2]
    return int(major), int(minor)


def _unreadable(name: str, error: BaseException) -> str:
    reason = (str(error).splitlines() or [''])[0]
    # Of the others the text is a number or a letter, and torch's advice is to run the file.
    if not isinstance(error, (RuntimeError, OSError)) or 'weights_only' in reason:
        reason = type(error).__name__
    return (f'{name} cannot be read as a checkpoint ({reason}). It is damaged, or not a file that '
            'torch.save wrote: copy it again, or give another one.')


def _refusal(name: str, culprit: str) -> str:
    return (f'{name} was refused: it names {culprit!r}, which is neither a tensor nor plain data, '
            'so that reading it could run code. Do not use a checkpoint from a source that you do '
            'not trust. If the file is your own and the class is yours, allow it before loading '
            'with torch.serialization.add_safe_globals([TheClass]).')


def load_from_local(filename: str, map_location: MapLocation = None) -> Any:
    """Loads a checkpoint from disk."""
    path = Path(filename).expanduser()
    if not path.is_file():
        beside = sorted(item.name for item in path.parent.glob('*.pth'))[:5]
        there = f' There: {", ".join(beside)}.' if beside else ''
        raise FileNotFoundError(f'The checkpoint {filename} does not exist.{there}')
    return safe_load(str(path), map_location)


def find_resumable(work_dir: str | Path) -> Path | None:
    """The newest checkpoint of a run that can be read.

    A process that is killed while it writes leaves half a file, also where it writes a file again.

    Args:
        work_dir (str | Path): Folder of the run.

    Returns:
        Path | None: None where a run can only start anew.
    """
    folder = Path(work_dir)
    # Of the run that was started last: the folder may hold files of a longer one before it.
    pointer = folder / 'last_checkpoint'
    last = Path(pointer.read_text().strip()) if pointer.is_file() else folder / 'none'
    if not last.is_file():
        last = folder / last.name  # the folder was moved
    # CheckpointHook.out_dir puts them elsewhere.
    found = {path for place in (folder, last.parent) for path in place.glob('*.pth')
             if re.fullmatch(r'(?:epoch|iter)_\d+\.pth', path.name)}
    order = sorted(found, key=lambda path: (path == last, path.stat().st_mtime_ns))
    for path in reversed(order):
        try:
            safe_load(path)
        except ValueError as error:
            # There is no logger yet: it is the runner's.
            print(f'warning: {error} Looking for an earlier one.', file=sys.stderr)
        else:
            return path
    return None


def load_from_http(filename: str, map_location: MapLocation = None, model_dir: str | None = None,
              **_: Any) -> Any:
    """Downloads a checkpoint once, then loads it from disk."""
    folder = Path(model_dir or Path(torch.hub.get_dir()) / 'checkpoints')
    target = folder / filename.rsplit('/', 1)[-1]

    @master_only
    def fetch() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            torch.hub.download_url_to_file(filename, str(target))

    fetch()
    barrier()
    return load_from_local(str(target), map_location)


def load_from_ceph(filename: str, map_location: MapLocation = None, **_: Any) -> Any:
    """Loads a checkpoint through one of mmengine's file backends."""
    return safe_load(io.BytesIO(read_bytes(filename)), map_location, name=filename)


def register_safe_loaders() -> None:
    """Makes mmengine load through this module, in this process."""
    from mmengine.runner import checkpoint as mmengine_checkpoint
    CheckpointLoader.register_scheme(prefixes='', loader=load_from_local, force=True)
    CheckpointLoader.register_scheme(
        prefixes=('http://', 'https://'), loader=load_from_http, force=True)
    CheckpointLoader.register_scheme(
        prefixes=[r'(\S+\:)?s3://', r'(\S+\:)?petrel://'], loader=load_from_ceph, force=True)
    # torchvision://, open-mmlab:// and mmcls:// call this name after they
    # have looked up the address.
    mmengine_checkpoint.load_from_http = load_from_http
