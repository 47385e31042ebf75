"""Stored features of a frozen backbone: writer, reader, and the backbone that serves them.

Training from stored features needs neither images nor backbone. A backbone maps its input to a
tuple of tensors, the last of which is f; what is stored is that f for each image.
"""
from .cached import CachedFeatures
from .kept import KeptFeatures
from .source import FrozenPart
from .store import FeatureStore, LoadFeature, feature_pipeline
from .writer import PhaseWriter, frozen_encoder, start_folder, write_phase

__all__ = ['CachedFeatures', 'FrozenPart']
