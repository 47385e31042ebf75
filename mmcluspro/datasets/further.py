"""Further datasets in the published layout: VAW-CZSL, AO-CLEVr and Clothing16K."""
from mmcluspro.registry import DATASETS

from .published import PublishedCZSL


@DATASETS.register_module()
class VAWCZSL(PublishedCZSL):
    """VAW-CZSL (Saini et al., 2022): attributes of objects cut out of Visual Genome's images.

    The lines of its pair lists are "attribute+object", because names have spaces ("light blue").
    Arguments as in :class:`~mmcluspro.datasets.PublishedCZSL`.
    """

    SEPARATOR = '+'


@DATASETS.register_module()
class AOCLEVr(PublishedCZSL):
    """AO-CLEVr (Atzmon et al., 2020): 8 colours of 3 shapes, rendered with CLEVr's engine.

    The release of IVR has the published layout. The splits of the original release are pickles;
    ``tools/dataset_converters/prepare_ao_clevr.py`` writes pair lists and metadata from them, with
    ``split='UV_random-5000-0'`` and so on. Arguments as in
    :class:`~mmcluspro.datasets.PublishedCZSL`.
    """


@DATASETS.register_module()
class Clothing16K(PublishedCZSL):
    """Clothing16K (Zhang et al., 2022): 9 colours of 8 kinds of clothes.

    Arguments as in :class:`~mmcluspro.datasets.PublishedCZSL`.
    """
