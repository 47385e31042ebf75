"""What the tools in ``tools/analysis_tools`` are made of: tables, runs, statistics, reports."""
from .records import Run, Store, fingerprint, resolve
from .report import write_report
from .statistics import Difference, mean_and_std, paired_difference, t_quantile
from .summary import Summary, summarise
from .tables import Row, Table, expand_names, load_tables

__all__ = [
    'Difference', 'Row', 'Run', 'Store', 'Summary', 'Table', 'expand_names', 'fingerprint',
    'load_tables', 'mean_and_std', 'paired_difference', 'resolve', 'summarise', 't_quantile',
    'write_report'
]
