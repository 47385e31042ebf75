"""Heads: from features to losses and scores."""
from .cluspro_head import ClusProHead
from .three_path_head import ThreePathHead, fuse
from .traction import CrossModalTraction
from .troika_head import TroikaHead

__all__ = ['ClusProHead', 'CrossModalTraction', 'ThreePathHead', 'TroikaHead', 'fuse']
