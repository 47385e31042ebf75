"""Attribute and object adapters: f_a = h_a(f), f_o = h_o(f), f_c = f (Eq. 1)."""
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mmengine.model import BaseModule
from torch import Tensor, nn

from mmcluspro.registry import MODELS

from ..structures import Features, with_width

NORMS: dict[str | None, Any] = {'BN': nn.BatchNorm1d, 'LN': nn.LayerNorm, None: None}
ACTIVATIONS = {'ReLU': nn.ReLU, 'GELU': nn.GELU}


class PrimitiveMLP(nn.Module):
    """The adapter of one branch, h: (B, D) → (B, D).

    A stage is linear, norm, activation, dropout. Without ``residual``, h is its stages, the last
    of width D. With it, h(f) = f + W stages(f), W zero at the start, so that training begins
    at CLIP's own feature. See ``PrimitiveAdapter`` for the arguments.
    """

    def __init__(self, in_channels: int, hidden: int, stages: int, norm: str | None, act: str,
                 dropout: float, residual: bool) -> None:
        super().__init__()
        widths = [in_channels, *[hidden] * stages]
        if not residual:
            widths[-1] = in_channels
        layers: list[nn.Module] = []
        for before, after in zip(widths[:-1], widths[1:]):
            layers.append(nn.Linear(before, after))
            if norm is not None:
                layers.append(NORMS[norm](after))
            layers += [ACTIVATIONS[act](), nn.Dropout(dropout)]
        self.stages = nn.Sequential(*layers)
        self.proj = nn.Linear(hidden, in_channels) if residual else None
        if self.proj is not None:
            nn.init.zeros_(self.proj.weight)
            nn.init.zeros_(self.proj.bias)

    def forward(self, f: Tensor) -> Tensor:
        """f (B, D) → (B, D)."""
        y = self.stages(f)
        return y if self.proj is None else f + self.proj(y)


@MODELS.register_module()
class PrimitiveAdapter(BaseModule):
    """Disentangles the image feature into attribute, object and composition features.

    The paper only says "a separate MLP". The default is one hidden layer with a skip connection
    from f. The released code uses ``stages=2, norm='BN', dropout=0.5, residual=False``, and Troika
    the same with one stage.

    Args:
        in_channels (int): Width D of f.
        hidden (int | None): Width between the layers. Defaults to None, D.
        stages (int): Number of stages: linear, norm, activation, dropout. Defaults to 1.
        norm (str | None): 'LN', 'BN' (couples the images of a batch) or None. Defaults to 'LN'.
        act (str): 'ReLU' or 'GELU'. Defaults to 'ReLU'.
        dropout (float): Dropout rate of a stage. Defaults to 0.1.
        residual (bool): Add f to a zero-initialised projection of the last stage; both features
            are f at the start. Defaults to True.
    """

    def __init__(self, in_channels: int, hidden: int | None = None, stages: int = 1,
                 norm: str | None = 'LN', act: str = 'ReLU', dropout: float = 0.1,
                 residual: bool = True) -> None:
        super().__init__()
        for field, value, allowed in (('norm', norm, NORMS), ('act', act, ACTIVATIONS)):
            if value not in allowed:
                raise ValueError(f'neck.{field} must be one of {list(allowed)}, got {value!r}.')
        if stages < 1:
            raise ValueError(f'neck.stages must be at least 1, got {stages}.')
        if not 0 <= dropout < 1:
            raise ValueError(f'neck.dropout must lie in [0, 1), got {dropout}.')
        self.in_channels = in_channels
        options = (in_channels, hidden or in_channels, stages, norm, act, dropout, residual)
        self.attribute = PrimitiveMLP(*options)
        self.object = PrimitiveMLP(*options)

    def forward(self, inputs: Features | Tensor | Sequence[Tensor]) -> Features:
        """Eq. 1.

        Args:
            inputs (Features | Tensor | Sequence[Tensor]): f, or the backbone's output that ends
                with it, shape (B, D).

        Returns:
            Features: f_a, f_o and f_c = f, each (B, D), not normalised, and all other outputs of
                the backbone.
        """
        features = with_width(inputs, self.in_channels)
        f = features.composition
        if len(f) == 1 and any(isinstance(m, nn.BatchNorm1d) and m.training
                               for m in self.modules()):
            raise ValueError(
                "neck.norm='BN' cannot train on a batch of one image: it has no variance. Set "
                'train_dataloader.drop_last=True or another train_dataloader.batch_size, so that '
                "the last batch has more, or neck.norm='LN'.")
        return replace(features, attribute=self.attribute(f), object=self.object(f))
