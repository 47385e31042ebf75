"""An MLP of its own for each path: what methods on stored features do with the image feature."""
from collections.abc import Sequence
from dataclasses import replace

from mmengine.model import BaseModule
from torch import Tensor, nn

from mmcluspro.registry import MODELS

from ..mlp import mlp
from ..structures import PATHS, Features, with_width


@MODELS.register_module()
class PathEmbedder(BaseModule):
    """f_x = MLP_x(f) for each path x; a path that is not named has none, f_c stays f.

    Args:
        in_channels (int): Width of f.
        out_channels (int): Width of the embeddings.
        hidden (Sequence[int]): Widths between. Defaults to (), a linear layer.
        paths (Sequence[str]): Of 'attribute', 'object' and 'composition'. Defaults to
            ('composition', ).
        norm (bool): Whether hidden layers have a LayerNorm. Defaults to False.
        dropout (float): Dropout rate after hidden layers. Defaults to 0.0.
        last_act (bool): Whether a ReLU follows the last layer. Defaults to False.
    """

    def __init__(self, in_channels: int, out_channels: int, hidden: Sequence[int] = (),
                 paths: Sequence[str] = ('composition', ), norm: bool = False,
                 dropout: float = 0.0, last_act: bool = False) -> None:
        super().__init__()
        if not paths or not set(paths) <= set(PATHS):
            raise ValueError(f'neck.paths must name some of {PATHS}, got {list(paths)}.')
        if not 0 <= dropout < 1:
            raise ValueError(f'neck.dropout must lie in [0, 1), got {dropout}.')
        self.in_channels = in_channels
        self.embed = nn.ModuleDict({
            path: mlp((in_channels, *hidden, out_channels), norm, dropout, last_act)
            for path in paths})

    def forward(self, inputs: Features | Tensor | Sequence[Tensor]) -> Features:
        """f, or the backbone's output that ends with it, to the features of the paths.

        Args:
            inputs (Features | Tensor | Sequence[Tensor]): f of shape (B, in_channels).

        Returns:
            Features: Of any norm, (B, out_channels) each, with everything else that came in.
        """
        features = with_width(inputs, self.in_channels)
        return replace(features, **{path: layers(features.composition)
                                    for path, layers in self.embed.items()})
