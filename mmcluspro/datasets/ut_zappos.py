"""UT-Zappos50K: 16 materials of 12 sorts of shoes."""
from mmcluspro.registry import DATASETS

from .published import PublishedCZSL


@DATASETS.register_module()
class UTZappos(PublishedCZSL):
    """UT-Zappos50K (Yu and Grauman, 2014) with the compositional split.

    A row names its image twice: ``image`` ("<attr>_<obj>/<file>", made by
    ``tools/dataset_converters/prepare_ut_zappos.py``) and ``_image`` (the path
    in the original archive). The first that exists below ``images/`` counts, so
    the archive unpacked as ``images/`` works as well. Arguments as in
    :class:`~mmcluspro.datasets.PublishedCZSL`.
    """

    IMAGE_KEYS = ('image', '_image')
