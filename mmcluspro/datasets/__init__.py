"""Label space and datasets."""
from .check import check_dataset
from .czsl_dataset import CZSLDataset
from .layout import write_layout
from .names import readable_name, resolve_readable
from .photographs import Fashion, Grocery, PlantVillage
from .pictures import KeepPrepared, LoadPicture, LoadReduced, PrepareImage
from .published import CGQA, VAWCZSL, AOCLEVr, Clothing16K, MITStates, PublishedCZSL, UTZappos
from .shapes import ShapesCZSL
from .space import CompositionSpace, build_space
from .splitting import make_split
from .table import TableCZSL

__all__ = ['CGQA', 'CZSLDataset', 'CompositionSpace', 'Fashion', 'MITStates', 'ShapesCZSL',
           'TableCZSL', 'UTZappos', 'build_space', 'check_dataset', 'make_split', 'readable_name',
           'write_layout']
