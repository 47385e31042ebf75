"""Hooks of the runner."""
from .checkpoint_hook import SafeCheckpointHook
from .console_hook import ConsoleHook, short_console
from .description_hook import DescriptionHook
from .epoch_seed_hook import EpochSeedHook
from .evaluation import EvaluationHook, needs_calibration
from .finite_hook import FiniteHook
from .labels_hook import LabelsHook
from .memory_hook import MemoryHook
from .prototype_hook import PrototypeHook
from .resume_hook import ResumeHook
from .stop_hook import StopHook
from .train_once_hook import TrainOnceHook

__all__ = [
    'ConsoleHook', 'DescriptionHook', 'EpochSeedHook', 'EvaluationHook', 'FiniteHook',
    'LabelsHook', 'MemoryHook', 'PrototypeHook', 'ResumeHook', 'SafeCheckpointHook', 'StopHook',
    'TrainOnceHook', 'needs_calibration', 'short_console']
