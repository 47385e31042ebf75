"""Label space and datasets."""
from .build import build_space
from .c_gqa import CGQA
from .czsl_dataset import CZSLDataset
from .layout import write_layout
from .mit_states import MITStates
from .names import readable_name, resolve_readable
from .published import PublishedCZSL
from .space import CompositionSpace
from .ut_zappos import UTZappos

__all__ = [
    'CGQA', 'CZSLDataset', 'CompositionSpace', 'MITStates', 'PublishedCZSL', 'UTZappos',
    'build_space', 'readable_name', 'resolve_readable', 'write_layout',
]
