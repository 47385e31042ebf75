"""Pictures of results."""
from .curve import plot_curve

__all__ = ['plot_curve']
