"""Hooks of the runner."""
from .checkpoints import ResumeHook, SafeCheckpointHook
from .console import ConsoleHook, short_console
from .evaluation import EvaluationHook, needs_calibration
from .finite import FiniteHook
from .memory import MemoryHook
from .prototypes import PrototypeHook
from .records import DescriptionHook, LabelsHook
from .seeds import EpochSeedHook, TrainOnceHook
from .stop import StopHook

__all__ = ['EvaluationHook', 'PrototypeHook']
