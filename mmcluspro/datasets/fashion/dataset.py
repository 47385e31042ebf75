"""The data set of photographs in the published layout."""
from typing import Any

from mmcluspro.datasets.published import PublishedCZSL
from mmcluspro.datasets.space import CompositionSpace
from mmcluspro.registry import DATASETS

from .versions import VERSION


@DATASETS.register_module()
class Fashion(PublishedCZSL):
    """Colours (attributes) of article types (objects), photographed by a fashion shop.

    The photographs are those of Kaggle's "Fashion Product Images (Small)" (60 × 80 px);
    ``tools/dataset_converters/prepare_fashion.py`` brings them into the published layout. Rows of
    the metadata also have a ``title``. See docs/fashion.md.

    Args:
        data_root (str): Folder that ``prepare_fashion.py`` wrote.
        phase (str): 'train', 'val' or 'test'. Defaults to 'train'.
        split (str): Version of the data set. Defaults to 'fashion-v1'.
        **kwargs: As in :class:`~mmcluspro.datasets.PublishedCZSL`.
    """

    def __init__(self, data_root: str, phase: str = 'train', split: str = VERSION,
                 **kwargs: Any) -> None:
        super().__init__(data_root, phase=phase, split=split, **kwargs)

    @classmethod
    def make_space(  # type: ignore[override]
            cls, phase: str = 'train', *, data_root: str, split: str = VERSION,
            allow_unknown: bool = False) -> CompositionSpace:
        return CompositionSpace.from_splits(data_root, split, phase, allow_unknown)
