"""LE+: images and pairs in one space, compared by distance."""
from typing import Any

from torch import Tensor

from mmcluspro.fields import Width, Widths
from mmcluspro.models.necks import mlp
from mmcluspro.models.text import WordTableText
from mmcluspro.registry import MODELS

from .common import DistanceHead


@MODELS.register_module()
class LEPlusText(WordTableText):
    """t_c = ReLU(MLP([w_a, w_o])), not normalised.

    Args:
        hidden (Sequence[int]): Hidden widths of the MLP. Defaults to (600, ).
        out_dim (int): Width of the embeddings. Defaults to 300.
        **kwargs: As in :class:`WordTableText`.
    """

    unit_norm = False

    def __init__(self, hidden: Widths = (600, ), out_dim: Width = 300, **kwargs: Any) -> None:
        super().__init__(out_dim=out_dim, **kwargs)
        self.composer = mlp((2 * self.width, *hidden, out_dim), last_act=True)

    def compose(self, parts: tuple[Tensor, Tensor], pairs: Tensor) -> Tensor:
        return self.composer(super().compose(parts, pairs))


@MODELS.register_module()
class LEPlusHead(DistanceHead):
    """LE+ (Misra et al., "From Red Wine to Red Tomato", CVPR 2017; Nagarajan and Grauman, 2018).

    A linear layer with ReLU (the neck) embeds the image, :class:`LEPlusText` the pair. Scores are
    negative squared distances; the loss is that of :class:`~.common.DistanceHead`:

        score(x, a, o) = -‖ReLU(W x) - ReLU(MLP([w_a, w_o]))‖²
    """
