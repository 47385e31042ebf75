"""Hooks of the runner."""
from .composition_hook import CompositionHook, needs_calibration
from .prototype_hook import PrototypeHook

__all__ = ['CompositionHook', 'PrototypeHook', 'needs_calibration']
