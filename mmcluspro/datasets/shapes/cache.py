"""Draws a version once and keeps it in a folder, memory-mapped afterwards."""
import json
import logging
import os
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
from mmengine.logging import print_log
from numpy.typing import NDArray

from mmcluspro.utils.digest import checksum, sha256
from mmcluspro.utils.files import atomic_path, write_text

from .drawing import IMAGE_SIZE, draw_image
from .versions import get_version, plan

Images = NDArray[np.uint8]
Modes = NDArray[np.int64]


@lru_cache(maxsize=1)
def code_revision() -> str:
    """Short hash of the drawing code: a change of it makes new cache files."""
    parts = []
    for path in sorted(Path(__file__).parent.glob('*.py')):
        if path.name not in ('cache.py', 'captions.py', 'dataset.py', '__init__.py'):
            parts.append(path.read_bytes())
    return sha256(*parts, digits=10)


def cache_folder(data_root: str = '') -> Path:
    """``data_root``, else ``$MMCLUSPRO_CACHE``, else ``~/.cache/mmcluspro``."""
    place = data_root or os.environ.get('MMCLUSPRO_CACHE') or '~/.cache/mmcluspro'
    return Path(place).expanduser()


def draw_version(name: str, seed: int) -> tuple[Images, Modes]:
    """Draws all pictures of a version.

    Returns:
        tuple: RGB images (N, H, W, 3) in the order of ``plan(name)`` and the
        modes of attribute and object (N, 2).
    """
    look, rows = get_version(name).look, plan(name)
    images = np.empty((len(rows), IMAGE_SIZE, IMAGE_SIZE, 3), dtype=np.uint8)
    modes = np.empty((len(rows), 2), dtype=np.int64)
    start = last = time.monotonic()
    for i, (phase, attribute, obj, number) in enumerate(rows):
        key = (name, seed, phase, attribute, obj, number)
        images[i], modes[i, 0], modes[i, 1] = draw_image(attribute, obj, key, look)
        now = time.monotonic()
        if now - last > 2:
            left = (now - start) / (i + 1) * (len(rows) - i - 1)
            print_log(f'Drawing {name}: {i + 1}/{len(rows)} pictures, {left:.0f} s left', 'current')
            last = now
    return images, modes


def load_version(name: str, seed: int, data_root: str = '') -> tuple[Images, Modes, Path | None]:
    """The pictures of a version, from the cache or drawn and cached.

    Returns:
        tuple: RGB images (N, H, W, 3), modes (N, 2), and the file that holds
        the images (None where the folder cannot be written).
    """
    path = cache_folder(data_root) / f'{name}_seed{seed}_{code_revision()}.npy'
    if path.exists():
        try:
            return *_read(path, len(plan(name))), path
        except (OSError, ValueError, KeyError) as error:
            print_log(f'{path} is damaged ({error}) and is drawn again.', 'current',
                      logging.WARNING)
    images, modes = draw_version(name, seed)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        facts = {'crc32': int(checksum(images), 16), 'modes': modes.tolist()}
        # Facts first: the images' file is what says that the entry is there.
        write_text(path.with_suffix('.json'), json.dumps(facts))
        with atomic_path(path) as part, part.open('wb') as file:
            np.save(file, images)
        return np.load(path, mmap_mode='r'), modes, path
    except OSError as error:
        print_log(f'{path.parent} cannot be written ({error}): the pictures of {name} stay in '
                  'memory. Set data_root or MMCLUSPRO_CACHE.', 'current', logging.WARNING)
        return images, modes, None


def _read(path: Path, count: int) -> tuple[Images, Modes]:
    facts = json.loads(path.with_suffix('.json').read_text())
    images = np.load(path, mmap_mode='r')
    if images.shape != (count, IMAGE_SIZE, IMAGE_SIZE, 3) or images.dtype != np.uint8:
        raise ValueError(f'shape {images.shape} {images.dtype}')
    if int(checksum(images), 16) != facts['crc32']:
        raise ValueError('wrong checksum')
    modes = np.asarray(facts['modes'], dtype=np.int64)
    if modes.shape != (count, 2):
        raise ValueError(f'{modes.shape} modes')
    return images, modes
