"""Tells drawings like those of the package from photographs, for the tiny CLIP knows no others."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

SIDE, RING, NEAR = 48, 4, 40  # pixels, pixels, steps of brightness
QUIET, DARKEST, BRIGHTEST = 0.75, 50, 205
NOT_DRAWN = ('This does not look like a drawing of the package. The model of this page was built '
             'on the tiny CLIP, which has seen such drawings only: about photographs its answers '
             'mean little. For photographs train with another image tower (docs/real_photos.md).')


def knows_drawings_only(description: Mapping[str, Any]) -> bool:
    """Whether the image tower of a model is the tiny CLIP of the package.

    Args:
        description (Mapping): Of a model from :func:`mmcluspro.apis.load_model`.
    """
    backbone = (description.get('model') or {}).get('backbone') or {}
    return backbone.get('pretrained') == 'tiny_clip'


def looks_drawn(image: Tensor) -> bool:
    """Whether a picture has the plain, middle-toned background of our drawings.

    Of photographs, product shots have a white border, and others a border of many colours.

    Args:
        image (Tensor): As the model gets it, BGR, shape (3, H, W), uint8.
    """
    pixels = image.permute(1, 2, 0).numpy().astype(np.float32)
    width = max(1, round(RING * min(pixels.shape[:2]) / SIDE))
    inner = np.zeros(pixels.shape[:2], bool)
    inner[width:-width, width:-width] = True
    border = pixels[~inner]
    middle = np.median(border, axis=0)
    quiet = (np.abs(border - middle).max(axis=1) < NEAR).mean()
    return bool(quiet >= QUIET and DARKEST <= middle.mean() <= BRIGHTEST)
