"""Label space and datasets."""
from .build import build_space
from .c_gqa import CGQA
from .check import check_dataset
from .czsl_dataset import CZSLDataset
from .features import FeatureStore, LoadFeature
from .layout import write_layout
from .mit_states import MITStates
from .names import readable_name, resolve_readable
from .published import PublishedCZSL
from .shapes import ShapesCZSL
from .space import CompositionSpace
from .splitting import make_split
from .table import TableCZSL
from .ut_zappos import UTZappos

__all__ = [
    'CGQA', 'CZSLDataset', 'CompositionSpace', 'FeatureStore', 'LoadFeature', 'MITStates',
    'PublishedCZSL', 'ShapesCZSL', 'TableCZSL', 'UTZappos', 'build_space', 'check_dataset',
    'make_split', 'readable_name', 'resolve_readable', 'write_layout',
]
