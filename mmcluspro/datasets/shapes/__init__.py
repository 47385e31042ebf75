"""Shapes: the embedded dataset, drawn by the code."""
from .attributes import ATTRIBUTES, IMAGE_SIZE, NUM_MODES, draw_image
from .dataset import ShapesCZSL
from .objects import OBJECTS
from .scene import Look
from .versions import VERSIONS, Version, get_version, phase_lists, plan, split_pairs

__all__ = [
    'ATTRIBUTES', 'IMAGE_SIZE', 'Look', 'NUM_MODES', 'OBJECTS', 'ShapesCZSL', 'VERSIONS',
    'Version', 'draw_image', 'get_version', 'phase_lists', 'plan', 'split_pairs',
]
