"""A run as one HTML file: numbers, curves, tables, mistakes, prototypes."""
from .report_build import build_report, leave_report
from .report_page import Report, ShownCase, write_report
from .run_history import RunFiles, read_run

__all__ = [
    'Report', 'RunFiles', 'ShownCase', 'build_report', 'leave_report', 'read_run', 'write_report'
]
