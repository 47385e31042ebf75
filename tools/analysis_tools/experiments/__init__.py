"""Tables, runs, statistics and reports: the parts of the scripts in ``tools/analysis_tools``.

The package belongs to the repository and is not installed with mmcluspro. The scripts beside it
find it because Python puts the folder of a script on the path. It needs a POSIX system.
"""
from .records import Run, fingerprint, resolve, row_name
from .run_store import Store
from .statistics import Difference, mean_and_std, paired_difference
from .summary import Summary, summarise
from .table_report import write_report
from .tables import Row, Table, expand_names, load_tables

__all__ = [
    'Difference', 'Row', 'Run', 'Store', 'Summary', 'Table', 'expand_names', 'fingerprint',
    'load_tables', 'mean_and_std', 'paired_difference', 'resolve', 'row_name', 'summarise',
    'write_report'
]
