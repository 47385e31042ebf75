"""Label space and datasets."""
from .build import build_space
from .czsl_dataset import CZSLDataset
from .layout import write_layout
from .names import readable_name, resolve_readable
from .space import CompositionSpace

__all__ = [
    'CZSLDataset', 'CompositionSpace', 'build_space', 'readable_name', 'resolve_readable',
    'write_layout',
]
