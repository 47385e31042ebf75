"""C-GQA: 413 attributes of 674 objects, cut out of GQA's images."""
from mmcluspro.registry import DATASETS

from .published import PublishedCZSL


@DATASETS.register_module()
class CGQA(PublishedCZSL):
    """C-GQA (Naeem et al., 2021): all images lie flat in ``images/``.

    133 training pairs have no image in the old release; they stay in the label
    space. Arguments as in :class:`~mmcluspro.datasets.PublishedCZSL`.
    """
