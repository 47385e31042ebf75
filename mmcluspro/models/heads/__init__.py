"""Heads: from features to losses and scores."""
from .base import CompositionHead, Portable
from .cluspro import ClusProHead
from .cluspro_plus import ClusProPlusHead, redistribute
from .joined import JoinedHead
from .regression import RegressionHead, Settings
from .three_path import ThreePathHead, fuse
from .troika import CrossModalTraction, TroikaHead

__all__ = ['ClusProHead', 'CompositionHead', 'Portable', 'ThreePathHead', 'TroikaHead', 'fuse']
