"""From a picture to the tower's input by plain numbers: resize and crop, no pipeline to build.

The pixels are those of mmpretrain's ``ResizeEdge``, ``Resize`` and ``CenterCrop``, bit by bit.
"""
from __future__ import annotations

import os
import re
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageOps

from mmcluspro.registry import TRANSFORMS

INTERPOLATIONS: dict[str, dict[str, Any]] = dict(
    cv2=dict(nearest=cv2.INTER_NEAREST, bilinear=cv2.INTER_LINEAR, bicubic=cv2.INTER_CUBIC,
             area=cv2.INTER_AREA, lanczos=cv2.INTER_LANCZOS4),
    pillow=dict(nearest=Image.Resampling.NEAREST, bilinear=Image.Resampling.BILINEAR,
                bicubic=Image.Resampling.BICUBIC, box=Image.Resampling.BOX,
                lanczos=Image.Resampling.LANCZOS, hamming=Image.Resampling.HAMMING))
EDGES = ('short', 'long', 'width', 'height')
# Signatures at the first byte: Pillow and OpenCV then agree on what a file is.
FORMATS = ('JPEG', 'PNG', 'BMP', 'GIF', 'WEBP', 'TIFF', 'PPM')
MAX_PIXELS = 100_000_000


class TooLarge(ValueError):
    """A picture with more pixels than the limit."""


def pixel_limit() -> int:
    """The largest picture that is decoded: ``MMCLUSPRO_MAX_PIXELS``, or 100 million pixels."""
    text = os.environ.get('MMCLUSPRO_MAX_PIXELS', str(MAX_PIXELS))
    if not text.isdigit() or not int(text):
        raise ValueError(f'MMCLUSPRO_MAX_PIXELS must be a number of pixels, got {text!r}.')
    return int(text)


def check_size(width: int, height: int, what: str = 'the picture') -> None:
    """Refuses a picture that would take too much memory, before a pixel of it is there."""
    limit = pixel_limit()
    if width * height > limit:
        raise TooLarge(
            f'{what} has {width} x {height} pixels, more than {limit:,}; make it smaller, or set '
            'MMCLUSPRO_MAX_PIXELS')


def read_picture(path: str, decoder: str = 'cv2') -> np.ndarray:
    """Decodes a file: BGR, uint8, shape (H, W, 3), upright.

    Args:
        path (str): A file on disk; addresses are not followed.
        decoder (str): 'cv2' or 'pillow'. Formats that OpenCV does not know, such as GIF, go to
            Pillow. Defaults to 'cv2'.
    """
    with open(path, 'rb') as file:
        data = file.read()
    if not data:
        raise ValueError('the file is empty')
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            check_size(*image.size)
            pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if (
                decoder == 'cv2' and image.format != 'GIF') else None
            return as_bgr(image) if pixels is None else pixels
    except TooLarge as error:
        raise ValueError(str(error)) from None
    except Image.DecompressionBombError as error:  # Pillow's own limit, above our default
        count = re.search(r'(\d+) pixels', str(error))
        raise ValueError(f'the picture has {int(count[1]) if count else 0:,} pixels, more than '
                         f'{min(pixel_limit(), 2 * (Image.MAX_IMAGE_PIXELS or 0)):,}; make it '
                         'smaller') from None
    except Exception as error:  # decoders of damaged files raise almost anything
        raise ValueError('not an image, or damaged') from error


def as_bgr(image: Any) -> np.ndarray:
    """A PIL image, or an array (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) → (H, W, 3), BGR."""
    if isinstance(image, Image.Image):
        check_size(*image.size)
        upright = ImageOps.exif_transpose(image) or image
        return np.ascontiguousarray(np.asarray(upright.convert('RGB'))[..., ::-1])
    if image.ndim == 2:
        image = image[..., None]
    return np.ascontiguousarray(
        image.repeat(3, axis=2) if image.shape[2] == 1 else image[..., :3])


def apply_steps(image: np.ndarray, steps: Sequence[dict[str, Any]]) -> np.ndarray:
    """Resizes and crops.

    Args:
        image (np.ndarray): uint8, shape (H, W, 3).
        steps (Sequence[dict]): ``dict(step='resize', size=224, edge='short',
            interpolation='bicubic', backend='pillow')``, where ``size`` is (width, height) for an
            ``edge`` of None, and ``dict(step='crop', size=(width, height))``.

    Returns:
        np.ndarray: uint8, shape (H', W', 3).
    """
    for step in steps:
        image = _resize(image, **_fields(step)) if step['step'] == 'resize' else _crop(
            image, *step['size'])
    return image


def _fields(step: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in step.items() if name != 'step'}


def _resize(image: np.ndarray, size: Any, edge: str | None, interpolation: str,
            backend: str) -> np.ndarray:
    height, width = image.shape[:2]
    if edge is None:
        target = size[0], size[1]
    elif edge == 'width' or edge == 'short' and width < height or (
            edge == 'long' and width > height):
        target = size, int(size * height / width)
    else:
        target = int(size * width / height), size
    target = max(target[0], 1), max(target[1], 1)
    check_size(*target, 'the resized picture')
    code = INTERPOLATIONS[backend][interpolation]
    if backend == 'cv2':
        return cv2.resize(image, target, interpolation=code)
    return np.array(Image.fromarray(image).resize(target, code))


def _crop(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """The middle; what is smaller stays as it is."""
    rows, columns = image.shape[:2]
    height, width = min(height, rows), min(width, columns)
    top, left = (max(0, int(round(rest / 2.))) for rest in (rows - height, columns - width))
    return image[top:top + height, left:left + width]


@TRANSFORMS.register_module()
class PrepareImage:
    """Resizes and crops ``img`` of a sample, as :func:`apply_steps`.

    Args:
        steps (Sequence[dict]): As in :func:`apply_steps`.
    """

    def __init__(self, steps: Sequence[dict[str, Any]]) -> None:
        self.steps = [dict(step) for step in steps]

    def __call__(self, results: dict[str, Any]) -> dict[str, Any]:
        image = apply_steps(results['img'], self.steps)
        return dict(results, img=image, img_shape=image.shape[:2])
