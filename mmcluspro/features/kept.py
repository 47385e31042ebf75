"""Features of photographs by their content, shared by all runs of a user on this machine."""
from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.logging import print_log

from mmcluspro.errors import reason_of
from mmcluspro.utils.digest import checksum, content_digest, file_digest
from mmcluspro.utils.download import kept_folder
from mmcluspro.utils.files import atomic_path, remove
from mmcluspro.utils.plain_files import check_plain

from .store import plain

FILES = ('pretrained', 'checkpoint')  # where weights lie; the fingerprint says which they are


class KeptFeatures:
    """What one frozen backbone made of photographs, prepared in one way.

    A file ``<crc>.npy`` holds rows of digest and feature; its name is its checksum.

    Args:
        facts (Mapping): Of :func:`~.writer.start_folder`.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.folder = kept_folder('features') / content_digest(_without_files(plain(
            {key: facts[key] for key in ('backbone', 'pool', 'fingerprint', 'pipeline',
                                         'preprocessor')})))
        self.rows: dict[bytes, np.ndarray] = {}
        for path in sorted(self.folder.glob('*.npy')):
            table = _read(path)
            if table is None:
                with suppress(OSError):
                    remove(self.folder, path)
            else:
                self.rows.update(zip(table['key'].tolist(), table['feature']))

    def find(self, files: Iterable[str | Path]) -> tuple[list[bytes], list[np.ndarray | None]]:
        """Digests of files, b'' for those that cannot be read, and the features that are known."""
        keys = [_digest(file) for file in files]
        return keys, [self.rows.get(key) for key in keys]

    def add(self, keys: Sequence[bytes], features: np.ndarray) -> None:
        """Keeps features (n, D) by the digests of their photographs; those without one are not."""
        there = np.array([bool(key) for key in keys])
        keys, features = [key for key in keys if key], features[there]
        if not keys:
            return
        table = np.empty(len(keys), [('key', 'S32'), ('feature', '<f4', features.shape[1:])])
        table['key'], table['feature'] = keys, features
        path = self.folder / f'{checksum(table.view(np.uint8))}.npy'
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as part, part.open('wb') as file:
                np.save(file, table)
        except OSError as error:
            print_log(f'Features cannot be kept for other runs ({reason_of(error)}).', 'current',
                      logging.WARNING)


def _digest(file: str | Path) -> bytes:
    try:
        check_plain(file, '')
        return file_digest(file).encode()
    except (OSError, ValueError):  # who reads it says why
        return b''


def _read(path: Path) -> np.ndarray | None:
    """The rows of a file; None if it is damaged."""
    try:
        table = np.load(path, mmap_mode='r', allow_pickle=False)
        whole = (table.ndim == 1 and table.dtype.names == ('key', 'feature')
                 and table.dtype['key'] == 'S32' and table.dtype['feature'].base == '<f4'
                 and checksum(table.view(np.uint8)) == path.stem)
    except (OSError, ValueError, EOFError):
        return None
    return table if whole else None


def _without_files(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_files(part) for key, part in value.items() if key not in FILES}
    return [_without_files(part) for part in value] if isinstance(value, list) else value
