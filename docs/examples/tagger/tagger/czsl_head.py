"""A head that sharpens the three paths; configs name it ``tagger.ScaledHead``."""
from typing import Annotated, Any

from mmengine.registry import MODELS as ROOT
from mmengine.registry import Registry

from mmcluspro.fields import Unsaved, number
from mmcluspro.models import Logits
from mmcluspro.models.heads import Portable, ThreePathHead

MODELS = Registry('model', parent=ROOT, scope='tagger', locations=['tagger.czsl_head'])


@MODELS.register_module()
class ScaledHead(ThreePathHead):
    """Multiplies the logits.

    Args:
        factor (float): Their factor, from 0 to 10. Defaults to 1.0.
        noise (float): Standard deviation of noise on the logits in training. Defaults to 0.0.
    """

    def __init__(self, *args: Any, factor: Annotated[float, number(0, 10)] = 1.0,
                 noise: Unsaved[float] = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.factor, self.noise = factor, noise

    def compare(self, *args: Any) -> Logits:
        return Logits._make(
            None if logits is None else self.factor * logits + (
                self.noise * logits.new_empty(logits.shape).normal_() if self.training else 0)
            for logits in super().compare(*args))

    def portable(self) -> Portable:
        plain = super().portable()
        scale = self.factor * plain.info['scale']
        return plain._replace(info=dict(plain.info, scale=scale), score=lambda features, table: (
            plain.score.func(features, table, self.fusion, scale)))
