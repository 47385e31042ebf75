"""Engine: checkpoints, launching, hooks."""
from .runner import ResumableRunner, SafeRunner

__all__ = ['ResumableRunner', 'SafeRunner']
