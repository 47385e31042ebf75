"""Hooks of the runner."""
from .composition_hook import CompositionHook, needs_calibration

__all__ = ['CompositionHook', 'needs_calibration']
