"""MIT-States: 115 states of 245 objects."""
from mmcluspro.registry import DATASETS

from .published import PublishedCZSL


@DATASETS.register_module()
class MITStates(PublishedCZSL):
    """MIT-States (Isola et al., 2015) with the compositional split (Purushwalkam et al., 2019).

    The archive's folders have spaces ("ancient building/"), the metadata
    underscores: both are found; ``tools/dataset_converters/prepare_mit_states.py``
    renames them. Arguments as in :class:`~mmcluspro.datasets.PublishedCZSL`.
    """
