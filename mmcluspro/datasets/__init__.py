"""Label space and datasets."""
from .c_gqa import CGQA
from .czsl_dataset import CZSLDataset
from .dataset_check import check_dataset
from .fashion import Fashion
from .fast_loading import KeepPrepared, LoadReduced
from .further import VAWCZSL, AOCLEVr, Clothing16K
from .layout import write_layout
from .mit_states import MITStates
from .names import readable_name, resolve_readable
from .picture_file import LoadPicture
from .pixels import PrepareImage
from .published import PublishedCZSL
from .shapes import ShapesCZSL
from .space import CompositionSpace
from .space_config import build_space
from .splitting import make_split
from .table import TableCZSL
from .ut_zappos import UTZappos

__all__ = [
    'AOCLEVr', 'CGQA', 'CZSLDataset', 'Clothing16K', 'CompositionSpace', 'Fashion', 'KeepPrepared',
    'LoadPicture', 'LoadReduced', 'MITStates', 'PrepareImage', 'PublishedCZSL', 'ShapesCZSL',
    'TableCZSL', 'UTZappos', 'VAWCZSL', 'build_space', 'check_dataset', 'make_split',
    'readable_name', 'resolve_readable', 'write_layout',
]
