"""Importing the package registers its parts; configs do so with ``custom_imports``."""
from .assigner import CrowdAssigner
from .loss import MarginLoss

__all__ = ['CrowdAssigner', 'MarginLoss']
