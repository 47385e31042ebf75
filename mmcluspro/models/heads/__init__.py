"""Heads: from features to losses and scores."""
from .base_head import CompositionHead
from .cluspro_head import ClusProHead
from .cluspro_plus_head import ClusProPlusHead, redistribute
from .portable import Portable
from .three_path_head import ThreePathHead, fuse
from .traction import CrossModalTraction
from .troika_head import TroikaHead

__all__ = ['ClusProHead', 'ClusProPlusHead', 'CompositionHead', 'CrossModalTraction', 'Portable',
           'ThreePathHead', 'TroikaHead', 'fuse', 'redistribute']
