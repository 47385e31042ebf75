"""Reads checkpoints without running code, in memory that is bounded by the size of the file.

mmengine 0.10 calls ``torch.load`` with torch's default, which refuses every training checkpoint,
because they hold mmengine's own ``HistoryBuffer``. The loaders here read tensors, plain containers
(including argparse's), numpy arrays and that one class, and nothing else.

``torch.load(weights_only=True)`` runs no code from a file, but it calls the functions of its own
list with whatever the file says, as often as it says: 2 kB of nested ``_codecs.encode(…, 'hex')``
become 2 GB. So each file is first run without making its objects. torch does not compare the
checksums of an archive, either.

Published models are safetensors files with everything but the tensors as JSON in the header.
Nothing is registered with mmengine here; :mod:`mmcluspro.engine.resuming` does that on request.
"""
from __future__ import annotations

import argparse
import io
import json
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from mmengine.fileio import get as read_bytes
from mmengine.logging import HistoryBuffer
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from mmcluspro.errors import FileError, reason_of

from .digest import file_digest, sha256
from .download import download
from .plain_files import COPY_AGAIN

BLOCK = 1 << 20
MOST_SQUEEZED = 100  # times that the content may be larger than the file, beyond the first 64 MB


def check_archive(file: Any, name: str) -> None:
    """Compares every record of a zip archive with its CRC-32. Other files pass.

    Args:
        file (str | Path | BinaryIO): The file; an open one is rewound.
        name (str): Name of the file for messages.

    Raises:
        FileError: Names the record.
    """
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                _check_records(archive, name)
    except FileError:
        raise
    except FileNotFoundError:
        raise
    except Exception as error:  # headers that are damaged raise almost anything
        raise FileError(name, f'the archive is damaged ({reason_of(error)})',
                        COPY_AGAIN) from error
    finally:
        if hasattr(file, 'seek'):
            file.seek(0)


def _check_records(archive: zipfile.ZipFile, name: str) -> None:
    seen = set()
    records = archive.infolist()
    packed, full = (sum(getattr(info, size) for info in records)
                    for size in ('compress_size', 'file_size'))
    if full > MOST_SQUEEZED * packed + (1 << 26):
        raise FileError(name, f'its {packed:,} bytes unpack to {full:,}', COPY_AGAIN)
    torch_file = any(info.filename.endswith('/data.pkl') for info in records)
    for info in records:
        try:
            if info.filename in seen:
                raise ValueError('it is there twice')
            seen.add(info.filename)
            if torch_file and info.compress_type and '/code/' not in info.filename:
                raise ValueError('it is compressed, which torch.save never does')
            with archive.open(info) as record:
                while record.read(BLOCK):
                    pass
        except Exception as error:
            raise FileError(name, f'the file is damaged ({reason_of(error)})', COPY_AGAIN,
                            f'record {info.filename[:100]!r}') from error


def check_named_digest(path: Path) -> None:
    """Compares a file with the eight hex digits of its SHA-256 that its name ends with.

    ``mmcluspro publish``, OpenMMLab and torchvision name files in this way. Other names pass.
    """
    found = re.search(r'-([0-9a-f]{8})\.(?:pth|safetensors)$', path.name)
    if not found or not re.search('[0-9]', found[1]):  # a word such as "-deadbeef" is not a digest
        return
    digest = file_digest(path, 'sha256')[:8]
    if digest != found[1]:
        raise FileError(path, f'its SHA-256 begins with {digest}, its name says '
                        f'{found[1]}: it is damaged, or was changed',
                        f'{COPY_AGAIN} If you changed it yourself, rename it.')


#: What a file may name and call: each makes about as much as it is given.
CALLS = {
    'collections.OrderedDict', 'builtins.set', 'builtins.complex', '_codecs.encode', 'torch.Size',
    'torch.device', 'torch.nn.parameter.Parameter', 'torch.serialization._get_layout',
    *(f'torch._utils._rebuild_{kind}' for kind in (
        'tensor', 'tensor_v2', 'tensor_v3', 'parameter', 'parameter_with_state', 'qtensor',
        'sparse_tensor', 'meta_tensor_no_storage')),
    # For readers that allow them; torch's own list has none of these.
    'mmengine.logging.history_buffer.HistoryBuffer', 'builtins.getattr', 'argparse.Namespace',
    'numpy.dtype', *(f'numpy.{core}.multiarray.{name}' for core in ('core', '_core')
                     for name in ('_reconstruct', 'scalar')),
}
#: Pickles in front of the storages of a file of the time before zip archives.
LEGACY = 5
LITERALS = {'NONE', 'NEWTRUE', 'NEWFALSE', 'BININT', 'BININT1', 'BININT2', 'LONG1', 'BINFLOAT',
            'BINUNICODE', 'SHORT_BINSTRING'}
TUPLES = dict(TUPLE1=1, TUPLE2=2, TUPLE3=3)
ITEMS = dict(APPEND=1, SETITEM=2)
VALUES = (torch.dtype, torch.layout, torch.qscheme)
EMPTY = {'EMPTY_TUPLE', 'EMPTY_LIST', 'EMPTY_DICT', 'EMPTY_SET'}
TIMES, SPARE = 8, 1 << 16  # what calls may take: so much for each byte of the file, and this
DEEPEST = 200  # lists in lists; those of a training are about ten deep


class Name(str):
    """A class or function that the file names."""


def load_pickle(file: Any, name: str, map_location: Any = 'cpu') -> Any:
    """The only ``torch.load``: plain data, and what ``torch.serialization.safe_globals`` adds.

    Args:
        file (str | Path | BinaryIO): The file.
        name (str): Name of the file for messages.
        map_location: As in ``torch.load``. Defaults to 'cpu'.

    Raises:
        FileError: The file names something else, is a program, or would fill the memory.
        Exception: Of any kind, for bytes that are not a checkpoint.
    """
    with torch.serialization._open_file_like(file, 'rb') as opened:
        for stream, count in _pickles(opened, name):
            for _ in range(count):
                check_pickle(stream, name)
    if hasattr(file, 'seek'):
        file.seek(0)
    return torch.load(file, map_location=map_location, weights_only=True)


def _pickles(opened: BinaryIO, name: str) -> Iterator[tuple[BinaryIO, int]]:
    """What torch's own reader takes for the pickle: others may see another one in the archive."""
    if not torch.serialization._is_zipfile(opened):
        yield opened, LEGACY
        return
    with torch.serialization._open_zipfile_reader(opened) as archive:
        if 'constants.pkl' in archive.get_all_records():
            raise FileError(name, 'it is a TorchScript program: reading it could run code',
                            'Give a file that torch.save wrote.')
        yield io.BytesIO(archive.get_record('data.pkl')), 1


def check_pickle(stream: BinaryIO, name: str) -> None:
    """Runs one pickle without making its objects.

    Every value is a literal, a :class:`Name`, or the list of what it is made of. A call costs the
    number of values and characters that it is given, counted again at each call: memoised values
    let few bytes give much to many.

    Raises:
        FileError: It names or calls what is not allowed, or calls take more than in a real file.
        Exception: Of any kind, for bytes that are not a pickle.
    """
    stack: list[Any] = []
    marks: list[list[Any]] = []
    memo: dict[Any, Any] = {}
    calls = CALLS | _named_by_user()
    start, left = stream.tell(), SPARE
    for opcode, value, _ in pickletools.genops(stream):
        code = opcode.name
        if code in LITERALS:
            stack.append(value)
        elif code in EMPTY:
            stack.append([])
        elif code == 'GLOBAL':
            stack.append(_named(str(value), calls, name))
        elif code == 'MARK':
            marks.append(stack)
            stack = []
        elif code == 'TUPLE':
            marks[-1].append(stack)
            stack = marks.pop()
        elif code in ('APPENDS', 'SETITEMS'):
            marks[-1][-1].extend(stack)
            stack = marks.pop()
        elif code in TUPLES:
            stack[-TUPLES[code]:] = [stack[-TUPLES[code]:]]
        elif code in ITEMS:
            items = [stack.pop() for _ in range(ITEMS[code])]
            stack[-1].extend(items)
        elif code == 'BINPERSID':
            stack[-1] = [stack[-1]]
        elif code in ('BINGET', 'LONG_BINGET'):
            stack.append(memo[value])
        elif code in ('BINPUT', 'LONG_BINPUT'):
            memo[value] = stack[-1]
        elif code in ('REDUCE', 'NEWOBJ', 'BUILD'):
            args = stack.pop()
            left -= _size(args, TIMES * (stream.tell() - start) + left, name)
            if code == 'BUILD':
                stack[-1].append(args)
            else:
                _check_call(stack[-1], args, calls, name)
                stack[-1] = [stack[-1], args]
        elif code not in ('PROTO', 'STOP'):
            raise ValueError(f'the operation {code}, which torch does not write')
    _check_nesting(stack[-1], TIMES * (stream.tell() - start) + SPARE, name)


def _named_by_user() -> set[str]:
    """What ``torch.serialization.add_safe_globals`` and ``safe_globals`` allow."""
    return {item[1] if isinstance(item, tuple) else f'{item.__module__}.{item.__qualname__}'
            for item in torch.serialization.get_safe_globals()}


def _named(words: str, calls: set[str], name: str) -> Name:
    found = words.replace(' ', '.').replace('__builtin__.', 'builtins.')
    kind = getattr(torch, found.removeprefix('torch.').removeprefix('storage.'), None)
    plain = isinstance(kind, VALUES) or found == 'numpy.ndarray' or (
        isinstance(kind, type) and found.startswith('torch.') and found.endswith('Storage'))
    if found not in calls and not plain:
        raise refusal(name, found)
    return Name(found)


def _check_call(function: Any, args: list[Any], calls: set[str], name: str) -> None:
    if not isinstance(function, Name) or function not in calls:
        raise refusal(name, str(function)[:100])
    # Bytes, as protocol 2 writes them: other codecs make more than they are given.
    if function == '_codecs.encode' and not (
            len(args) == 2 and type(args[0]) is type(args[1]) is str and args[1] == 'latin1'):
        raise refusal(name, '_codecs.encode with another codec')
    if function.endswith('._reconstruct') and args[1] != [0]:
        raise refusal(name, 'an array without content')


def _size(value: Any, most: int, name: str) -> int:
    """Values and characters in a value, those that are there twice counted twice."""
    size, rest = 0, [value]
    while rest:
        item = rest.pop()
        size += 1 + (len(item) if isinstance(item, (str, bytes)) else 0)
        if isinstance(item, list):
            rest.extend(item)
        if size > most:
            raise FileError(name, 'its few bytes would fill the memory', 'Do not use it: '
                            'torch.save writes no such file.')
    return size


def _check_nesting(value: Any, most: int, name: str) -> None:
    """Refuses what no walk over the content would get through: too deep, or lists that share lists
    so that few bytes are very many values."""
    rest, seen = [(value, 0)], 0
    while rest:
        item, depth = rest.pop()
        if isinstance(item, list):
            seen += len(item)
            rest.extend((part, depth + 1) for part in item if isinstance(part, list))
        if seen > most or depth > DEEPEST:
            raise FileError(name, 'its lists and dicts are nested without end', 'Do not use it: '
                            'training writes no such file.')


def refusal(name: str, culprit: str) -> FileError:
    """For a file that names something else than data."""
    return FileError(
        name, f'it was refused, because it names {culprit!r}, which is neither a tensor nor plain '
        'data: reading it could run code',
        'Do not use a checkpoint from a source that you do not trust. If the file is your own '
        'and the class is yours, allow it before loading with '
        'torch.serialization.add_safe_globals([TheClass]).')


SUFFIX = '.safetensors'
KEY = 'mmcluspro'  # of the header's metadata
HELD = 'tensor'  # {'tensor': name} in the JSON stands for a tensor of the file


def tensor_bytes(meta: dict[str, Any], state: dict[str, Tensor]) -> bytes:
    """The bytes of a file; the same model gives the same bytes.

    Args:
        meta (dict): Plain data, which may hold tensors.
        state (dict[str, Tensor]): Weights by key.
    """
    # A view would be refused: it shares its memory with the tensor it is a view of.
    tensors = {key: value.detach().clone().contiguous() for key, value in state.items()}

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, Tensor):
            raise TypeError(f'a {type(value).__name__} is no plain data')
        name = f'{KEY}.{len(tensors)}'
        tensors[name] = value.contiguous()
        return {HELD: name}

    meta = json.loads(json.dumps(meta, default=plain))
    header, body = _parts(save(tensors))
    return save(tensors, {KEY: json.dumps(
        dict(meta=meta, sha256=_digest(meta, header, body)))})


def read_tensor_bytes(data: bytes, name: str) -> dict[str, Any]:
    """``meta`` and ``state_dict`` of a file, whose checksum is compared.

    Args:
        data (bytes): The file.
        name (str): Of the file, for messages.
    """
    try:
        header, body = _parts(data)
        told = json.loads(header.pop('__metadata__', {}).get(KEY, 'null'))
        known = isinstance(told, dict) and isinstance(told.get('meta'), dict)
        whole = known and told.get('sha256') == _digest(told['meta'], header, body)
        state = load(data)
        meta = _filled(told['meta'], state) if whole else {}
    except (ValueError, RecursionError, AttributeError, TypeError, SafetensorError) as error:
        raise FileError(name, f'it is not a safetensors file, or damaged ({reason_of(error)})',
                        COPY_AGAIN) from error
    if not known:
        raise FileError(name, f'its header has no {KEY!r}: it is not an mmcluspro model',
                        'Give a file that training or mmcluspro publish wrote.')
    if not whole:
        raise FileError(name, 'its content does not fit its checksum: it is damaged, or was '
                        'changed', COPY_AGAIN)
    return dict(meta=meta, state_dict=state)


def _parts(data: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(data[:8], 'little')
    return json.loads(data[8:end]), data[end:]


def _digest(meta: dict[str, Any], header: dict[str, Any], body: bytes) -> str:
    return sha256(json.dumps([meta, header], sort_keys=True).encode(), body)


def _filled(meta: Any, state: dict[str, Tensor]) -> Any:
    """The same data with its tensors, which are taken out of ``state``."""
    if isinstance(meta, list):
        return [_filled(value, state) for value in meta]
    if not isinstance(meta, dict):
        return meta
    if list(meta) == [HELD] and str(meta[HELD]).startswith(f'{KEY}.'):
        return state.pop(meta[HELD], None)
    return {key: _filled(value, state) for key, value in meta.items()}


# What holds weights; the message hub keeps numbers of the log, which may be anything.
PARTS = ('state_dict', 'ema_state_dict', 'optimizer')


def non_finite_tensors(checkpoint: Mapping[str, Any]) -> list[str]:
    """Names of the weights and optimizer states that hold NaN or infinity.

    Attention masks hold -inf by design; buffers whose name ends with ``mask`` may hold infinity.

    Args:
        checkpoint (Mapping): What ``Runner.save_checkpoint`` writes.

    Returns:
        list[str]: Such as ``state_dict.neck.weight``; empty for a good checkpoint.
    """
    found = []
    for part in PARTS:
        for name, tensor in tensors_of(checkpoint.get(part), part):
            if not tensor.is_floating_point():
                continue
            bad = tensor.isnan() if name.endswith('mask') else ~tensor.isfinite()
            if bool(bad.any()):
                found.append(name)
    return found


def tensors_of(value: Any, name: str = '') -> Iterator[tuple[str, Tensor]]:
    """The tensors in containers, with their dotted names, which begin with ``name``."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_of(item, f'{name}.{key}'.lstrip('.'))
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from tensors_of(item, f'{name}.{place}')


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
