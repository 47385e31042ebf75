"""Heads: from features to losses and scores."""
from .three_path_head import ThreePathHead, fuse

__all__ = ['ThreePathHead', 'fuse']
