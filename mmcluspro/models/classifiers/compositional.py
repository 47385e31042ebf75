"""The classifier: backbone → neck → head, with a label space."""
from collections.abc import Mapping
from typing import Any

from mmpretrain.models import ImageClassifier

from mmcluspro.registry import MODELS

from ..backbones import CachedFeatures
from ..state import compact_state_hooks


@MODELS.register_module()
class CompositionalClassifier(ImageClassifier):
    """An image classifier over attribute-object pairs.

    Checkpoints hold what is trained and the buffers, not the frozen towers;
    the label space travels in their ``meta.dataset_meta``.

    Args:
        space (dict): The label space, given as the dataset it comes from, for
            example ``dict(type='mmcluspro.UTZappos', data_root='data/ut-zap50k')``.
        backbone (dict): Returns a tuple that ends with f, shape (B, D).
        head (dict): Losses and scores; gets the space.
        neck (dict, optional): Turns the features into (f_a, f_o, f_c), Eq. 1.
            Defaults to None, for heads with the composition path only.
        full_state (bool): Save frozen weights too. Defaults to False.
        **kwargs: ``train_cfg``, ``data_preprocessor``, ``init_cfg`` and
            ``pretrained`` of mmpretrain's ImageClassifier.
    """

    def __init__(self, space: dict, backbone: dict, head: dict, neck: dict | None = None,
                 full_state: bool = False, **kwargs: Any) -> None:
        super().__init__(backbone, neck, dict(head, space=space), **kwargs)
        compact_state_hooks(self, full_state)
        preprocessor = kwargs.get('data_preprocessor') or {}
        for part in self.backbone.modules():
            if isinstance(part, CachedFeatures) and isinstance(preprocessor, Mapping):
                part.expect(preprocessor=preprocessor)

    @property
    def space(self) -> Any:
        """The label space of training."""
        return self.head.space
