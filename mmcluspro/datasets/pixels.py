"""From a picture to the tower's input by plain numbers: resize and crop, no pipeline to build.

The pixels are those of mmpretrain's ``ResizeEdge``, ``Resize`` and ``CenterCrop``, bit by bit.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from PIL import Image

from mmcluspro.registry import TRANSFORMS

from .picture_file import check_size

INTERPOLATIONS: dict[str, dict[str, Any]] = dict(
    cv2=dict(nearest=cv2.INTER_NEAREST, bilinear=cv2.INTER_LINEAR, bicubic=cv2.INTER_CUBIC,
             area=cv2.INTER_AREA, lanczos=cv2.INTER_LANCZOS4),
    pillow=dict(nearest=Image.Resampling.NEAREST, bilinear=Image.Resampling.BILINEAR,
                bicubic=Image.Resampling.BICUBIC, box=Image.Resampling.BOX,
                lanczos=Image.Resampling.LANCZOS, hamming=Image.Resampling.HAMMING))
EDGES = ('short', 'long', 'width', 'height')


def apply_steps(image: np.ndarray, steps: Sequence[dict[str, Any]]) -> np.ndarray:
    """Resizes and crops.

    Args:
        image (np.ndarray): uint8, shape (H, W, 3).
        steps (Sequence[dict]): ``dict(step='resize', size=224, edge='short',
            interpolation='bicubic', backend='pillow')``, where ``size`` is (width, height) for an
            ``edge`` of None, ``dict(step='crop', size=(width, height))``, and ``dict(step='fit',
            size=(width, height), fill=0, …)``: as large as fits, with a grey border.

    Returns:
        np.ndarray: uint8, shape (H', W', 3).
    """
    kinds: dict[str, Any] = dict(resize=_resize, crop=_crop, fit=_fit)
    for step in steps:
        image = kinds[step['step']](image, **_fields(step))
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


def _fit(image: np.ndarray, size: Sequence[int], fill: int, interpolation: str,
         backend: str) -> np.ndarray:
    """open_clip's ``ResizeKeepRatio`` of the long edge and ``CenterCropOrPad``."""
    rows, columns = image.shape[:2]
    ratio = max(columns / size[0], rows / size[1])
    image = _resize(image, [round(columns / ratio), round(rows / ratio)], None, interpolation,
                    backend)
    rest = [size[1] - image.shape[0], size[0] - image.shape[1], 0]
    return np.pad(image, [(side // 2, side - side // 2) for side in rest], constant_values=fill)


def _crop(image: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """The middle; what is smaller stays as it is."""
    (rows, columns), (width, height) = image.shape[:2], size
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
