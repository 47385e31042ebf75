"""Heads: from features to losses and scores."""
from .cluspro_head import ClusProHead
from .three_path_head import ThreePathHead, fuse

__all__ = ['ClusProHead', 'ThreePathHead', 'fuse']
