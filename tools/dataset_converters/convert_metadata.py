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
from pathlib import Path
from typing import Any

import numpy as np
import torch

#: What a pickle may ask for. NumPy renamed a module, files may have either name.
_scalar = np.str_('').__reduce__()[0]
ALLOWED = {
    ('numpy', 'dtype'): np.dtype,
    ('numpy.core.multiarray', 'scalar'): _scalar,
    ('numpy._core.multiarray', 'scalar'): _scalar,
}
#: A torch file of the time before zip archives starts with these three pickles.
LEGACY_HEAD = 3
MAGIC_NUMBER = 0x1950a86a20f9469cfc6c


class PlainUnpickler(pickle.Unpickler):
    """Knows nothing but the names in ``ALLOWED``."""

    def find_class(self, module: str, name: str) -> Any:
        if module == '_codecs' and name == 'encode':
            return lambda text, encoding: text.encode('latin1')
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f'the file asks for {module}.{name}, which is refused')
        return ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError('the file holds tensors')


def read_plain(path: Path) -> Any:
    """The object in a torch file (zip or older) or a bare pickle."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            name = next(name for name in archive.namelist() if name.endswith('data.pkl'))
            return PlainUnpickler(io.BytesIO(archive.read(name))).load()
    with open(path, 'rb') as file:
        first = PlainUnpickler(file, encoding='latin1').load()
        if first != MAGIC_NUMBER:
            return first
        for _ in range(LEGACY_HEAD - 1):
            PlainUnpickler(file).load()
        return PlainUnpickler(file, encoding='latin1').load()


def plain(value: Any) -> Any:
    """Plain text instead of NumPy strings and bytes, lists instead of tuples."""
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode('utf-8')
    return value.item() if isinstance(value, np.generic) else value


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('source', type=Path)
    parser.add_argument('target', type=Path)
    args = parser.parse_args(argv)
    if args.target.exists():
        parser.error(f'{args.target} exists and is not overwritten')
    try:
        rows = plain(read_plain(args.source))
    except pickle.UnpicklingError as error:
        print(f'{args.source}: {error}', file=sys.stderr)
        return 1
    torch.save(rows, args.target)
    print(f'{len(rows)} rows written to {args.target}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
