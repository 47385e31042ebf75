"""Pictures of results."""
from .curve_file import StoredCurve, read_curves, write_curves
from .curve_plot import draw_curves, plot_curve
from .run_hooks import leave_curves, show_picture

__all__ = [
    'StoredCurve', 'draw_curves', 'leave_curves', 'plot_curve', 'read_curves', 'show_picture',
    'write_curves'
]
