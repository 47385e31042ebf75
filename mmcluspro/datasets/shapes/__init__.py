"""Shapes: the embedded dataset, drawn by the code."""
from .attributes import ATTRIBUTES
from .dataset import ShapesCZSL
from .draw import Look
from .objects import OBJECTS
from .versions import (
    IMAGE_SIZE,
    VERSIONS,
    Version,
    draw_image,
    get_version,
    phase_lists,
    plan,
    split_pairs,
)

__all__ = ['ShapesCZSL', 'draw_image']
