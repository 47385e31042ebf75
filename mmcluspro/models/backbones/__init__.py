"""Image towers: a tuple that ends with f, shape (B, D)."""
from .clip_vision import CLIPVision
from .frozen import FrozenTower
from .projected import ProjectedBackbone

__all__ = ['CLIPVision', 'FrozenTower', 'ProjectedBackbone']
