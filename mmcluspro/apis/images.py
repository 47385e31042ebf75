"""Images in every form a user has them in, listed and read one by one."""
from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import DefaultScope
from mmpretrain.registry import TRANSFORMS
from PIL import Image, ImageOps

from mmcluspro.datasets.folder_tree import IMAGE_SUFFIXES
from mmcluspro.datasets.folder_tree import _images as images_below

LOADER = 'LoadImageFromFile'


class Item(NamedTuple):
    """An image that was asked for: a path, a PIL image or an array."""
    name: str
    source: Any


def list_images(images: Any) -> list[Item]:
    """Turns what the user gave into a list, without reading a file.

    Args:
        images: Path, folder (searched with all its folders), glob pattern, array (H, W, 3) of
            uint8 in BGR order, as mmcv and mmpretrain have them, (H, W) or (H, W, 4), PIL image,
            or an iterable of these.

    Returns:
        list[Item]: A file that was named twice stands there once.
    """
    alone = isinstance(images, (str, os.PathLike, Image.Image)) or (
        isinstance(images, np.ndarray) and images.ndim < 4)
    if not alone and not isinstance(images, Iterable):
        raise ValueError(f'{images!r} is no image: {_FORMS}')
    found: list[Item] = []
    for place, image in enumerate([images] if alone else images):
        if isinstance(image, (str, os.PathLike)):
            found += [Item(path, path) for path in _paths(os.fspath(image))]
        elif isinstance(image, (Image.Image, np.ndarray)):
            found.append(Item(f'image {place}', _checked(image, place)))
        else:
            raise ValueError(f'image {place} is a {type(image).__name__}: {_FORMS}')
    if not found:
        raise ValueError(f'There are no images: {_FORMS}')
    return list({item.name: item for item in found}.values())


_FORMS = ('give a path, a folder, a glob pattern, a PIL image, an array (H, W, 3) of uint8 in BGR '
          'order, or a list of these.')


def _paths(text: str) -> Iterator[str]:
    path = Path(text).expanduser()
    if path.is_dir():
        names = images_below(path)
        if not names:
            raise ValueError(f'No image below {text}; looked for '
                             f'{", ".join(sorted(IMAGE_SUFFIXES))}.')
        yield from (os.path.join(path, name) for name in names)
    elif path.is_file():
        yield str(path)
    else:
        matches = sorted(glob.glob(str(path), recursive=True))
        files = [name for name in matches if os.path.isfile(name)]
        if not files:
            raise FileNotFoundError(f'No image {text}: it is neither a file nor a folder, and as '
                                    'a pattern it matches no file.')
        yield from files


def _checked(image: Any, place: int) -> Any:
    if isinstance(image, Image.Image):
        return image
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or (
            image.ndim == 3 and image.shape[2] not in (1, 3, 4)) or 0 in image.shape:
        raise ValueError(
            f'image {place} is an array of {image.dtype}, shape {image.shape}; it must be uint8 '
            '(0 … 255) of shape (H, W, 3) in BGR order, (H, W) or (H, W, 4).')
    return image


def _as_bgr(image: Any) -> np.ndarray:
    if isinstance(image, Image.Image):
        upright = ImageOps.exif_transpose(image) or image
        return np.ascontiguousarray(np.asarray(upright.convert('RGB'))[..., ::-1])
    if image.ndim == 2:
        image = image[..., None]
    return np.ascontiguousarray(
        image.repeat(3, axis=2) if image.shape[2] == 1 else image[..., :3])


class Preprocessor:
    """The test pipeline of a config, for files and for images in memory.

    Args:
        cfg (Config): The model's config.
        size (int | None): Image side of the tower. Pipelines without a resize, of data that is
            drawn at that size, get one.
    """

    def __init__(self, cfg: Config, size: int | None) -> None:
        steps = [dict(step) for step in pipeline_of(cfg)]
        loaders = [step for step in steps if step['type'].split('.')[-1] == LOADER]
        rest = [step for step in steps if step not in loaders]
        rest = [step for step in rest if step['type'].split('.')[-1] != 'PackInputs']
        if size and not any('Resize' in step['type'] or 'Crop' in step['type'] for step in rest):
            rest += [dict(type='ResizeEdge', scale=size, edge='short', backend='pillow',
                          interpolation='bicubic'), dict(type='CenterCrop', crop_size=size)]
        with DefaultScope.overwrite_default_scope('mmpretrain'):
            self.load: Any = TRANSFORMS.build(loaders[0] if loaders else dict(type=LOADER))
            self.rest = Compose([TRANSFORMS.build(step)
                                 for step in [*rest, dict(type='PackInputs')]])

    def __call__(self, item: Item) -> tuple[Any, str | None]:
        """Reads one image.

        Returns:
            tuple: The image (3, H, W), uint8, and None; or None and why it cannot be read.
        """
        try:
            if isinstance(item.source, str):
                image = self._read(item.source)
            else:
                pixels = _as_bgr(item.source)
                image = dict(img=pixels, img_shape=pixels.shape[:2], ori_shape=pixels.shape[:2])
            return self.rest(image)['inputs'], None
        except Exception as error:  # one file of thousands must not end the run
            reason = ' '.join(str(error).split()) or type(error).__name__
            return None, reason if isinstance(error, (ValueError, OSError)) else (
                f'{type(error).__name__}: {reason}')

    def _read(self, path: str) -> dict:
        if not os.path.getsize(path):
            raise ValueError('the file is empty')
        try:
            return self.load(dict(img_path=path))
        except Exception:  # formats that OpenCV does not know, such as GIF
            try:
                with Image.open(path) as image:
                    pixels = _as_bgr(image)
            except (OSError, SyntaxError, ValueError) as error:
                raise ValueError('not an image, or damaged') from error
            return dict(img=pixels, img_shape=pixels.shape[:2], ori_shape=pixels.shape[:2])


def pipeline_of(cfg: Config) -> list:
    """The test pipeline of a config."""
    loader = cfg.get('test_dataloader') or {}
    pipeline = loader.get('dataset', {}).get('pipeline', cfg.get('test_pipeline'))
    if pipeline is None:
        raise ValueError(
            'The config of the checkpoint has neither test_dataloader.dataset.pipeline nor '
            'test_pipeline, which say how images are prepared.')
    return pipeline
