"""Tensors of a TorchScript archive, the format of OpenAI's CLIP files, without the interpreter.

``torch.jit.load`` runs methods of the archive (``__setstate__``). Here the zip is read as data:
``data.pkl`` with an unpickler that knows tensors, lists and modules without any behaviour, and the
records that hold the numbers. The folder ``code/`` is never opened.
"""
from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmcluspro.errors import FileError, reason_of

CONVERT = ('Save its state dict with torch.save, or download the file again if it should be one '
           'of the published weights.')
DTYPES = {f'{name}Storage': dtype for name, dtype in (
    ('Half', torch.float16), ('BFloat16', torch.bfloat16), ('Float', torch.float32),
    ('Double', torch.float64), ('Byte', torch.uint8), ('Char', torch.int8),
    ('Short', torch.int16), ('Int', torch.int32), ('Long', torch.int64), ('Bool', torch.bool))}
LISTS = ('build_intlist', 'build_doublelist', 'build_boollist', 'build_tensorlist')
LARGEST_PICKLE = 1 << 26
DEEPEST = 100


class ScriptObject:
    """A module of the archive: what it holds, and nothing that it does."""

    def __setstate__(self, state: Any) -> None:
        self.state = state


def is_torchscript(path: Path) -> bool:
    """Whether the file is a zip with TorchScript sources (``torch.save`` writes none)."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any('/code/' in name for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def read_torchscript(path: Path) -> dict[str, Tensor]:
    """Tensors by their dotted name, as ``torch.jit.load(path).state_dict()`` has them.

    Args:
        path (Path): The archive. Tensors that are attributes, not parameters or buffers, come too.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            reader = _ArchiveReader(archive, path)
            return dict(reader.tensors())
    except FileError:
        raise
    except Exception as error:  # bytes that are not an archive raise almost anything
        raise FileError(path, f'the TorchScript archive cannot be read ({reason_of(error)})',
                        CONVERT) from error


class _ArchiveReader:
    """Reads one archive; each storage once."""

    def __init__(self, archive: zipfile.ZipFile, path: Path) -> None:
        self.archive, self.path = archive, path
        found = [name for name in archive.namelist() if name.endswith('/data.pkl')]
        if len(found) != 1 or found[0].count('/') != 1:
            raise FileError(path, f'one data.pkl expected, found {len(found)}', CONVERT)
        self.root = found[0].rpartition('/')[0]
        self.storages: dict[str, Tensor] = {}
        self.bytes_left = 2 * path.stat().st_size
        order = f'{self.root}/byteorder'
        if order in archive.namelist() and archive.read(order) != b'little':
            raise FileError(path, 'its numbers are big-endian', CONVERT)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors below the top module."""
        info = self.archive.getinfo(f'{self.root}/data.pkl')
        if info.file_size > LARGEST_PICKLE:
            raise FileError(self.path, f'data.pkl has {info.file_size:,} bytes', CONVERT)
        top = _Unpickler(io.BytesIO(self.archive.read(info)), self).load()
        found: dict[str, Tensor] = {}
        self._collect(top, '', found, 0)
        return found

    def _collect(self, module: Any, prefix: str, found: dict[str, Tensor], depth: int) -> None:
        state = getattr(module, 'state', None)
        if not isinstance(module, ScriptObject) or not isinstance(state, dict) or depth > DEEPEST:
            return
        for name, value in state.items():
            if isinstance(value, Tensor):
                self.bytes_left -= value.numel() * value.element_size()
                if self.bytes_left < 0:
                    raise FileError(self.path, 'its tensors are larger than the file', CONVERT)
                found[f'{prefix}{name}'] = value
            else:
                self._collect(value, f'{prefix}{name}.', found, depth + 1)

    def storage(self, key: Any, dtype: Any, count: Any) -> Tensor:
        """The numbers of a record, shape (count,)."""
        name = f'{self.root}/data/{key}'
        if name not in self.storages:
            info = self.archive.getinfo(name)
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != count * dtype.itemsize:
                raise FileError(self.path, f'it has {info.file_size} bytes where {count} numbers '
                                f'of {dtype} are expected', CONVERT, f'record {name}')
            data = self.archive.read(info)
            self.storages[name] = torch.frombuffer(bytearray(data), dtype=dtype) if data else (
                torch.empty(0, dtype=dtype))
        return self.storages[name]


class _Unpickler(pickle._Unpickler):
    """Accepts tensors, lists and modules without behaviour; refuses any other name.

    In Python: the one in C makes a table of gigabytes for one wrong number in the file.
    """

    def __init__(self, file: io.BytesIO, reader: _ArchiveReader) -> None:
        super().__init__(file)
        self.reader = reader

    def find_class(self, module: str, name: str) -> Any:
        if module == '__torch__' or module.startswith('__torch__.'):
            return ScriptObject
        if (module, name) == ('torch._utils', '_rebuild_tensor_v2'):
            return _tensor
        if module == 'torch' and name in DTYPES:
            return DTYPES[name]
        if (module, name) == ('collections', 'OrderedDict'):
            return OrderedDict
        if module == 'torch.jit._pickle' and name in LISTS:
            return list
        if (module, name) == ('torch.jit._pickle', 'restore_type_tag'):
            return lambda value, *_: value
        raise pickle.UnpicklingError(f'it asks for {module}.{name}')

    def persistent_load(self, pid: Any) -> Tensor:
        kind, dtype, key, _, count = pid
        if kind != 'storage' or not isinstance(dtype, torch.dtype) or not isinstance(count, int):
            raise pickle.UnpicklingError('a record that is not a storage')
        return self.reader.storage(key, dtype, count)


def _tensor(storage: Tensor, offset: int, size: tuple, stride: tuple, *_: Any) -> Tensor:
    """A view of a storage, inside it and no larger than it."""
    numbers = (offset, *size, *stride)
    if not all(type(value) is int and value >= 0 for value in numbers) or len(size) != len(stride):
        raise pickle.UnpicklingError('a tensor of an impossible shape')
    count, last = 1, offset
    for length, step in zip(size, stride):
        count *= length
        last += (length - 1) * step
    if count and (last >= len(storage) or count > len(storage)):
        raise pickle.UnpicklingError('a tensor that is larger than its storage')
    return storage.as_strided(size, stride, offset)
