"""Hooks of the runner."""
from .composition_hook import CompositionHook, needs_calibration
from .epoch_seed_hook import EpochSeedHook
from .prototype_hook import PrototypeHook
from .resume_hook import ResumeHook

__all__ = [
    'CompositionHook', 'EpochSeedHook', 'PrototypeHook', 'ResumeHook', 'needs_calibration']
