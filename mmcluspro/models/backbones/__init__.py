"""Image towers: a tuple that ends with f, shape (B, D)."""
from .cached import CachedFeatures, FeaturePreprocessor
from .clip_vision import CLIPVision
from .dino import DINO
from .encoder import frozen_encoder
from .frozen import FrozenTower
from .projected import ProjectedBackbone

__all__ = [
    'CLIPVision', 'CachedFeatures', 'DINO', 'FeaturePreprocessor', 'FrozenTower',
    'ProjectedBackbone', 'frozen_encoder'
]
