"""Shapes: the embedded dataset, drawn by the code."""
from .attributes import ATTRIBUTES
from .dataset import ShapesCZSL
from .drawing import IMAGE_SIZE, draw_image
from .objects import OBJECTS
from .scene import Look
from .versions import VERSIONS, Version, get_version, phase_lists, plan, split_pairs

__all__ = [
    'ATTRIBUTES', 'IMAGE_SIZE', 'Look', 'OBJECTS', 'ShapesCZSL', 'VERSIONS',
    'Version', 'draw_image', 'get_version', 'phase_lists', 'plan', 'split_pairs',
]
