"""Lists and reads images: files, folders, patterns, PIL images and arrays."""
from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import DefaultScope
from mmpretrain.registry import TRANSFORMS
from PIL import Image

from mmcluspro.datasets.folders import IMAGE_SUFFIXES, images_below, left_out
from mmcluspro.datasets.pictures import WHITE, apply_steps, as_bgr, check_size, colour, read_picture
from mmcluspro.models.pixels import Pixels, tower_pixels

from .spec import describe_pipeline, pipeline_of

CHANNELS = ('BGR', 'RGB')
LOAD_AND_PACK = ('LoadImageFromFile', 'LoadPicture', 'PackInputs')


class Item(NamedTuple):
    """An input image: a path, a PIL image or an array."""
    name: str
    source: Any
    channels: str = 'BGR'


def list_images(images: Any, channels: str = 'BGR') -> list[Item]:
    """Turns the user's input into a list of images, without reading a file.

    Args:
        images: Path, folder (searched with all its folders), glob pattern, array (H, W, 3) of
            uint8, (H, W) or (H, W, 4), PIL image, or an iterable of these.
        channels (str): Channel order of arrays. Defaults to 'BGR', as in mmcv and mmpretrain.

    Returns:
        list[Item]: The images, without duplicate files.
    """
    if str(channels).upper() not in CHANNELS:
        raise ValueError(f"channels must be 'BGR' or 'RGB', got {channels!r}.")
    alone = isinstance(images, (str, os.PathLike, Image.Image, bytes, bytearray, memoryview)) or (
        isinstance(images, np.ndarray) and images.ndim < 4)
    if not alone and not isinstance(images, Iterable):
        raise ValueError(f'{images!r} is not an image: {_FORMS}')
    found: list[Item] = []
    files: set[str] = set()
    for place, image in enumerate([images] if alone else images):
        if isinstance(image, (str, os.PathLike)):
            for path in _paths(os.fspath(image)):
                if path not in files:
                    files.add(path)
                    found.append(Item(path, path))
        elif isinstance(image, (Image.Image, np.ndarray)):
            name = getattr(image, 'filename', '') or f'image {place}'
            found.append(Item(str(name), _checked(image, place), str(channels).upper()))
        elif isinstance(image, (bytes, bytearray, memoryview)):
            raise ValueError(f'image {place} is {type(image).__name__}: open it first, '
                             'PIL.Image.open(io.BytesIO(data)).')
        else:
            raise ValueError(f'image {place} is a {type(image).__name__}: {_FORMS}')
    if not found:
        raise ValueError(f'There are no images: {_FORMS}')
    return found


_FORMS = ('give a path, a folder, a glob pattern, a PIL image, an array (H, W, 3) of uint8 in BGR '
          "order (channels='RGB' for the other one), or a list of these.")


def _paths(text: str | bytes) -> Iterator[str]:
    text = os.fsdecode(text)
    scheme = re.match(r'(https?|ftp|s3|gs|file|data):', text, re.IGNORECASE)
    path = Path(text).expanduser()
    if path.is_dir():
        names = images_below(path, once=True)
        others = left_out(path)
        if not names:
            raise ValueError(f'No image below {text}; looked for '
                             f'{", ".join(sorted(IMAGE_SUFFIXES))}.'
                             + (f' {others[0].upper()}{others[1:]}.' if others else ''))
        if others:
            warnings.warn(f'{text}: {others}', stacklevel=4)
        yield from (os.path.join(path, name) for name in names)
    elif path.is_file():
        yield str(path)
    elif scheme and scheme[1].lower() == 'file':
        raise ValueError(f'{text} is an address: give the path '
                         f'{unquote(urlsplit(text).path) or "of the file"} instead.')
    elif scheme:
        raise ValueError(f'{text[:200]} is an address, and addresses are not followed: download '
                         'the file and give its path.')
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


class Preprocessor:
    """Prepares images as in the test pipeline of the training.

    Args:
        description (Mapping): ``description`` of a model: its ``preparation`` is plain numbers.
        size (int | None): Image size of the tower. If the preparation does not resize, because the
            data was drawn at that size, a resize is added.
        config (Config, optional): The user's own config. Its test pipeline is built if plain
            numbers cannot describe it. Defaults to None.
        background (str | Sequence[int], optional): Colour behind transparent images, see
            :func:`~mmcluspro.datasets.pictures.colour`. Defaults to None: as in training, which
            is white unless the config says otherwise.
    """

    def __init__(self, description: Mapping[str, Any], size: int | None,
                 config: Config | None = None, background: Any = None) -> None:
        found = description.get('preparation')
        if found is None and config is None:
            raise ValueError(
                'The checkpoint does not say how pictures are prepared in a way that can be built: '
                f'{description.get("no_preparation", "it has no preparation")}. Give the config '
                'file of the training with --config FILE (config=…).')
        own = config if found is None else None
        self.described = None if own is None else pipeline_of(own)
        self.pipeline = None if own is None else config_pipeline(own)
        self.decoder: str = 'cv2' if found is None else found['decoder']
        self.background = colour(background) if background is not None else (
            found or {}).get('background', WHITE)
        self.steps: list[dict[str, Any]] = [] if found is None else list(found['steps'])
        if size and found is not None and not self.steps:
            pixels = tower_pixels(description['model']['backbone']) or Pixels.of()
            self.steps = describe_pipeline(pixels.replace(dict(size=size)).steps())['steps']

    @property
    def facts(self) -> dict[str, Any]:
        """Plain data: what is equal here prepares a file in the same way."""
        return dict(pipeline=self.described, decoder=self.decoder, background=self.background,
                    steps=self.steps)

    def __call__(self, item: Item) -> tuple[Any, str | None]:
        """Reads one image.

        Returns:
            tuple: The image (3, H, W), uint8, and None; or None and the reason why it cannot be
                read.
        """
        try:
            pixels = read_picture(item.source, self.decoder, self.background) if (
                isinstance(item.source, str)) else (
                as_bgr(item.source, self.background, item.channels))
            check_size(pixels.shape[1], pixels.shape[0])
            if self.pipeline is not None:
                shape = pixels.shape[:2]
                return self.pipeline(dict(img=pixels, img_shape=shape, ori_shape=shape))[
                    'inputs'], None
            image = apply_steps(pixels, self.steps).transpose(2, 0, 1)
            return torch.from_numpy(np.ascontiguousarray(image)), None
        except Exception as error:  # one file of thousands must not end the run
            reason = ' '.join(str(error).split()) or type(error).__name__
            return None, reason if isinstance(error, (ValueError, OSError)) else (
                f'{type(error).__name__}: {reason}')


def config_pipeline(cfg: Any) -> Compose:
    """Builds the test pipeline of the user's own config, without its loader."""
    steps = [step for step in pipeline_of(cfg)
             if step['type'].split('.')[-1] not in LOAD_AND_PACK]
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        return Compose([TRANSFORMS.build(step) for step in [*steps, dict(type='PackInputs')]])
