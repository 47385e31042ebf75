"""The embedded dataset: pictures drawn by the code and kept in a folder, nothing to download."""
from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.logging import print_log
from numpy.typing import NDArray
from PIL import Image

from mmcluspro.datasets.czsl_dataset import CZSLDataset
from mmcluspro.datasets.layout import write_layout
from mmcluspro.datasets.space import CompositionSpace
from mmcluspro.registry import DATASETS
from mmcluspro.utils.digest import checksum, sha256
from mmcluspro.utils.files import atomic_path, write_text

from .versions import IMAGE_SIZE, draw_image, get_version, phase_lists, plan

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


@DATASETS.register_module()
class ShapesCZSL(CZSLDataset):
    """Shapes with an attribute, drawn by the code: the same bytes on every machine.

    Each attribute and object has hidden modes (three reds, four- and
    five-pointed stars, …); in versions from v2 on, which one a picture shows
    depends mostly on the other primitive. A sample has ``img`` (48, 48, 3) uint8 in BGR order
    with ``img_shape`` and ``ori_shape``, as after ``LoadImageFromFile``, the
    labels of :class:`CZSLDataset`, and ``attr_mode`` and ``obj_mode`` for
    analysis: never name them in ``PackInputs``.

    Args:
        version (str): 'shapes-v2', 'shapes-large-v2', 'shapes-v1',
            'shapes-easy-v1', 'shapes-hard-v1' or 'shapes-large-v1'; fixes pairs,
            split and difficulty. Defaults to 'shapes-v2'.
        phase (str): 'train', 'val' or 'test'. Defaults to 'train'.
        seed (int): Seed of the pictures; the split does not depend on it.
            Defaults to 0.
        data_root (str): Cache folder. Defaults to '': ``$MMCLUSPRO_CACHE`` or
            ``~/.cache/mmcluspro``.
        pipeline (Sequence): Transforms. Defaults to ().
        **kwargs: Other arguments of :class:`CZSLDataset`.
    """

    def __init__(self,
                 version: str = 'shapes-v2',
                 phase: str = 'train',
                 seed: int = 0,
                 data_root: str = '',
                 pipeline: Sequence = (),
                 **kwargs: Any) -> None:
        get_version(version)
        if not isinstance(seed, int) or seed < 0:
            raise ValueError(f'seed must be an integer of at least 0, got {seed!r}.')
        self.version, self.seed = version, seed
        self._cache = str(data_root)
        self._images: np.ndarray | None = None
        self._file: Path | None = None
        super().__init__(
            space=self.make_space(phase, version), known=self.make_space('all', version),
            phase=phase, pipeline=pipeline, **kwargs)

    @classmethod
    def make_space(  # type: ignore[override]
            cls, phase: str = 'train', version: str = 'shapes-v2', seed: int = 0,
            data_root: str = '') -> CompositionSpace:
        """The space of a phase; ``seed`` and ``data_root`` change nothing in it."""
        get_version(version)
        return CompositionSpace.from_lists(phase_lists(version), phase)

    def load_data_list(self) -> list[dict]:
        """One dict a picture, without the pixels (see :meth:`get_data_info`)."""
        self._images, modes, self._file = load_version(self.version, self.seed, self._cache)
        rows = [(i, row) for i, row in enumerate(plan(self.version)) if row[0] == self.phase]
        labels = self.labels([row[1] for _, row in rows], [row[2] for _, row in rows])
        return [
            dict(row=i, attr_mode=int(modes[i, 0]), obj_mode=int(modes[i, 1]), **label)
            for (i, _), label in zip(rows, labels)
        ]

    @property
    def images(self) -> np.ndarray:
        """RGB pictures of all phases (N, 48, 48, 3); ``row`` of a sample indexes it."""
        if self._images is None:
            self._images, _, self._file = load_version(self.version, self.seed, self._cache)
        return self._images

    def get_data_info(self, idx: int) -> dict:
        """A sample with its pixels, BGR as mmcv reads files."""
        info = super().get_data_info(idx)
        info['img'] = np.ascontiguousarray(self.images[info['row']][..., ::-1])
        info['img_shape'] = info['ori_shape'] = info['img'].shape[:2]
        return info

    def __getstate__(self) -> dict:
        """Workers get the file's name, not the pixels, where there is a file."""
        state = self.__dict__.copy()
        if self._file is not None:
            state['_images'] = None
        return state

    def export(self, root: str | Path) -> Path:
        """Writes all phases as PNG files in the published layout.

        Args:
            root (str | Path): The later ``data_root`` of a reader of files.

        Returns:
            Path: The metadata file.
        """
        rows = []
        for i, (phase, attribute, obj, _) in enumerate(plan(self.version)):
            name = f'{attribute}_{obj}/{i:06d}.png'
            path = Path(root).expanduser() / 'images' / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.asarray(self.images[i])).save(path)
            rows.append({'image': name, 'attr': attribute, 'obj': obj, 'set': phase})
        return write_layout(root, rows, phase_lists(self.version))

    def extra_repr(self) -> list[str]:
        return [f'Version: \t{self.version}, pictures of seed {self.seed}', *super().extra_repr()]
