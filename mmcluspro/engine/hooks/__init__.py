"""Hooks of the runner."""
from .composition_hook import CompositionHook, needs_calibration
from .epoch_seed_hook import EpochSeedHook
from .prototype_hook import PrototypeHook

__all__ = ['CompositionHook', 'EpochSeedHook', 'PrototypeHook', 'needs_calibration']
