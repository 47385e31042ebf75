"""The text side of CompCos and ADE."""
from typing import Any

from torch import Tensor, nn

from mmcluspro.registry import MODELS

from ..text import WordTableText


@MODELS.register_module()
class LinearPairText(WordTableText):
    """t_a = w_a, t_o = w_o, t_c = W [w_a, w_o] + b, each scaled to unit norm.

    Args:
        out_dim (int): Width of t_c. Defaults to 300.
        **kwargs: As in :class:`WordTableText`.
    """

    def __init__(self, out_dim: int = 300, **kwargs: Any) -> None:
        super().__init__(out_dim=out_dim, **kwargs)
        self.composer = nn.Linear(2 * self.width, out_dim)

    def compose(self, parts: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        return self.composer(super().compose(parts, pairs))
