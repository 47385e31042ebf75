"""Pictures of results."""
from .curve_plot import StoredCurve, draw_curves, plot_curve, read_curves, write_curves
from .run_hooks import leave_curves, show_picture

__all__ = ['plot_curve']
