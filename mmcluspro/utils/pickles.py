"""Reads torch's pickles as data, in memory that is bounded by the size of the file.

``torch.load(weights_only=True)`` runs no code from a file, but it calls the functions of its own
list with whatever the file says, as often as it says: 2 kB of nested ``_codecs.encode(…, 'hex')``
become 2 GB. So each file is first run without making its objects.
"""
import io
import pickletools
from collections.abc import Iterator
from typing import Any, BinaryIO

import torch

from mmcluspro.errors import FileError

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


def refusal(name: str, culprit: str) -> FileError:
    """For a file that names something else than data."""
    return FileError(
        name, f'it was refused, because it names {culprit!r}, which is neither a tensor nor plain '
        'data: reading it could run code',
        'Do not use a checkpoint from a source that you do not trust. If the file is your own '
        'and the class is yours, allow it before loading with '
        'torch.serialization.add_safe_globals([TheClass]).')
