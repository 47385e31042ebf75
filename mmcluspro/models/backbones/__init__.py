"""Image towers: a tuple that ends with f, shape (B, D)."""
from mmcluspro.features import CachedFeatures
from mmcluspro.features.cached import FeaturePreprocessor

from .clip_vision import CLIPVision
from .dino import DINO, DINOv2
from .frozen import FrozenTower
from .projected import ProjectedBackbone
from .timm_vision import TimmVision

__all__ = ['CLIPVision', 'DINOv2', 'ProjectedBackbone', 'TimmVision']
