"""Importing the package registers its parts; configs do so with ``custom_imports``."""
from .adaptive import AdaptiveHead
from .assigner import CrowdAssigner
from .late_interaction import LateInteractionHead
from .loss import MarginLoss
from .pair_margin import PairMarginLoss
from .pair_prior import PairPriorHead

__all__ = ['AdaptiveHead', 'CrowdAssigner', 'LateInteractionHead', 'MarginLoss', 'PairMarginLoss',
           'PairPriorHead']
