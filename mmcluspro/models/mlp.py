"""The one way in which necks, heads and text sides stack linear layers."""
from collections.abc import Sequence
from itertools import pairwise

from torch import nn


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
