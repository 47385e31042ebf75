#!/usr/bin/env python
"""Rewrites a metadata file that holds NumPy strings or tuples as plain text.

    python tools/dataset_converters/convert_metadata.py old.t7 new.t7

The readers of mmcluspro load plain lists, dicts and strings only. This tool reads old
files with a short list of harmless names and refuses everything else: nothing that the file
asks for is ever run.
"""
import argparse
import io
import pickle
import sys
import zipfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mmcluspro.datasets.layout import row_faults
from mmcluspro.errors import FileError, raise_faults, reason_of
from mmcluspro.utils.safe_load import check_archive

REMEDY = ('Give a metadata file of the published layout: a list of dicts with image, attr, obj '
          'and set.')

class PlainDtype:
    """Stands for NumPy's: a code such as 'U5' and the order of the bytes, no behaviour."""

    def __init__(self, code: str, *_: Any) -> None:
        if not isinstance(code, str):  # lists in lists would make a text without end
            raise pickle.UnpicklingError('the file holds NumPy values of an unknown type')
        self.code, self.order = code, '<'

    def __setstate__(self, state: Any) -> None:
        self.order = '>' if state[1] == '>' else '<'


def plain_scalar(dtype: PlainDtype, data: bytes = b'') -> Any:
    """The text or number that NumPy stored as bytes."""
    data = data.encode('latin1') if isinstance(data, str) else data
    kind = dtype.code.lstrip('<>=|')[:1]
    if kind == 'U':
        return data.decode('utf-32-le' if dtype.order == '<' else 'utf-32-be').rstrip('\0')
    if kind == 'S':
        return data.rstrip(b'\0')
    if kind not in 'biuf' or len(data) > 16:
        raise pickle.UnpicklingError(f'the file holds NumPy values of type {dtype.code[:20]!r}')
    return np.frombuffer(data, np.dtype(dtype.code).newbyteorder(dtype.order))[0].item()


#: What a pickle may ask for. NumPy renamed a module, files may have either name.
ALLOWED: dict[tuple[str, str], Any] = {
    ('numpy', 'dtype'): PlainDtype,
    ('numpy.core.multiarray', 'scalar'): plain_scalar,
    ('numpy._core.multiarray', 'scalar'): plain_scalar,
}
#: A torch file of the time before zip archives starts with these three pickles.
LEGACY_HEAD = 3
ENTRIES = 10_000_000
MAGIC_NUMBER = 0x1950a86a20f9469cfc6c


class PlainUnpickler(pickle._Unpickler):
    """Knows nothing but the names in ``ALLOWED``.

    In Python: the one in C makes a table of gigabytes for one wrong number in the file. Keys are
    plain: the hash of tuples in tuples takes for ever.
    """

    dispatch = dict(pickle._Unpickler.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        if module == '_codecs' and name == 'encode':
            return lambda text, encoding: text.encode('latin1')
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f'the file asks for {module}.{name}, which is refused')
        return ALLOWED[module, name]

    def load_plain_items(self) -> None:
        items = self.pop_mark()
        self.add_items(items)

    def load_plain_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.add_items([key, value])

    def add_items(self, items: list[Any]) -> None:
        keys = items[::2]
        if not all(isinstance(key, (str, bytes, int, float)) for key in keys):
            raise pickle.UnpicklingError('a dict in the file has keys that are no text')
        if not isinstance(self.stack[-1], dict):
            raise pickle.UnpicklingError('the file is damaged')
        self.stack[-1].update(zip(keys, items[1::2]))

    def load_plain_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], PlainDtype):
            raise pickle.UnpicklingError('the file holds objects with a state')
        self.stack[-1].__setstate__(state)

    def load_unknown(self) -> None:
        raise pickle.UnpicklingError('the file holds sets or arrays of bytes')

    def load_plain_dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self.add_items(items)

    dispatch[pickle.SETITEM[0]] = load_plain_item
    dispatch[pickle.SETITEMS[0]] = load_plain_items
    dispatch[pickle.DICT[0]] = load_plain_dict
    dispatch[pickle.BUILD[0]] = load_plain_build
    for code in (pickle.EMPTY_SET, pickle.FROZENSET, pickle.ADDITEMS, pickle.BYTEARRAY8):
        dispatch[code[0]] = load_unknown

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError('the file holds tensors')


def read_plain(path: Path) -> Any:
    """The rows in a torch file (zip or older) or a bare pickle, as plain data.

    Raises:
        FileError: For a file that is damaged, asks for a class, or holds something else.
    """
    check_archive(path, str(path))
    try:
        rows = plain(_unpickled(path), count(ENTRIES, -1))
    except Exception as error:  # bytes that are not a pickle raise almost anything
        raise FileError(path, f'it cannot be read as plain data ({reason_of(error)})',
                        REMEDY) from error
    if not isinstance(rows, list):
        raise FileError(path, f'it holds a {type(rows).__name__} instead of a list', REMEDY)
    raise_faults(row_faults(rows, path), REMEDY)
    return rows


def _unpickled(path: Path) -> Any:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith('data.pkl')]
            if len(names) != 1:
                raise ValueError(f'{len(names)} records data.pkl')
            return PlainUnpickler(io.BytesIO(archive.read(names[0]))).load()
    with open(path, 'rb') as file:
        first = PlainUnpickler(file, encoding='latin1').load()
        if first != MAGIC_NUMBER:
            return first
        for _ in range(LEGACY_HEAD - 1):
            PlainUnpickler(file).load()
        return PlainUnpickler(file, encoding='latin1').load()


def plain(value: Any, left: Iterator[int]) -> Any:
    """Plain text instead of NumPy strings and bytes, lists instead of tuples.

    Args:
        value (Any): Of the file. Lists in it may hold each other, and so stand for endless ones.
        left (Iterator[int]): Counts the entries down.
    """
    if next(left) == 0:
        raise ValueError(f'it has more than {ENTRIES:,} entries')
    if isinstance(value, dict):
        return {str(plain(key, left)): plain(item, left) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, left) for item in value]
    if isinstance(value, bytes):
        return value.decode('utf-8')
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, (str, bool, int, float)):
        raise ValueError(f'it holds a {type(value).__name__}')
    return value


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('source', type=Path)
    parser.add_argument('target', type=Path)
    args = parser.parse_args(argv)
    if args.target.exists():
        parser.error(f'{args.target} exists and is not overwritten')
    try:
        rows = read_plain(args.source)
    except (FileError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    torch.save(rows, args.target)
    print(f'{len(rows)} rows written to {args.target}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
