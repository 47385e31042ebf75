"""Necks: the adapters of Eq. 1, f_a = h_a(f), f_o = h_o(f), f_c = f, and an MLP for each path.

:func:`mlp` is the one way in which necks, heads and text sides stack linear layers.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, Literal

from mmengine.model import BaseModule
from torch import Tensor, nn

from mmcluspro.fields import Unsaved, Width, Widths, choice, integer, items
from mmcluspro.models.structures import PATHS, Features, with_width
from mmcluspro.registry import MODELS


def mlp(widths: Sequence[int], norm: bool = False, dropout: float = 0.0,
        last_act: bool = False) -> nn.Sequential:
    """Linear layers with LayerNorm, ReLU and dropout after each but the last.

    Args:
        widths (Sequence[int]): Of the input, the hidden layers and the output.
        norm (bool): Whether hidden layers have a LayerNorm. Defaults to False.
        dropout (float): Dropout rate after hidden layers. Defaults to 0.0.
        last_act (bool): Whether a ReLU follows the last layer. Defaults to False.
    """
    layers: list[nn.Module] = []
    *hidden, last = pairwise(widths)
    for before, after in hidden:
        layers.append(nn.Linear(before, after))
        if norm:
            layers.append(nn.LayerNorm(after))
        layers += [nn.ReLU(), nn.Dropout(dropout)]
    layers.append(nn.Linear(*last))
    return nn.Sequential(*layers, *([nn.ReLU()] if last_act else []))


class Neck(BaseModule):
    """What ``model.neck`` may be: turns the features of a backbone into those of the paths."""


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
class PrimitiveAdapter(Neck):
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

    def __init__(self, in_channels: Width, hidden: Width | None = None,
                 stages: Annotated[int, integer(1, 16)] = 1,
                 norm: Literal['BN', 'LN'] | None = 'LN', act: Literal['ReLU', 'GELU'] = 'ReLU',
                 dropout: Unsaved[float] = 0.1, residual: bool = True) -> None:
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


@MODELS.register_module()
class PathEmbedder(Neck):
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

    def __init__(self, in_channels: Width, out_channels: Width, hidden: Widths = (),
                 paths: Annotated[Sequence[str], items(choice(*PATHS), 1, 3)] = ('composition', ),
                 norm: bool = False, dropout: Unsaved[float] = 0.0, last_act: bool = False) -> None:
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
