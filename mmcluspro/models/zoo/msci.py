"""MSCI: texts read the first and the last layers of the image tower, one stage after the other.

Wang, Xu, Zhu and Li, "MSCI: Addressing CLIP's Inherent Limitations for Compositional Zero-Shot
Learning".
"""
from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, integer
from mmcluspro.models.heads import TroikaHead
from mmcluspro.models.heads.three_path import Fusion
from mmcluspro.models.heads.troika import Memory, TractionLayer
from mmcluspro.models.structures import PATHS, Features
from mmcluspro.registry import MODELS


def aggregator(layers: int, dim: int, dropout: float) -> nn.Module:
    """Joins the tokens of layers: dropout(ReLU(norm(W [x_1; …; x_n]))); nothing for one layer."""
    if layers == 1:
        return nn.Identity()
    return nn.Sequential(nn.Linear(layers * dim, dim), nn.LayerNorm(dim), nn.ReLU(),
                         nn.Dropout(dropout))


@MODELS.register_module()
class MultiStageTraction(nn.Module):
    """text' = normalise(text + λ_1 ⊙ q_1 + λ_2 ⊙ q_2), with q_1 from low and q_2 from high layers.

    Args:
        dim (int): Width D of texts and tokens, a multiple of 64.
        low (int): Number of low layers. Defaults to 3.
        high (int): Number of high layers. Defaults to 3.
        dropout (float): Dropout rate of stages and aggregators. Defaults to 0.1.
        scale (float): Initial value of λ_1 and λ_2, vectors that learn. Defaults to 0.1.
    """

    def __init__(self, dim: int, low: int = 3, high: int = 3, dropout: float = 0.1,
                 scale: float = 0.1) -> None:
        super().__init__()
        if dim % 64:
            raise ValueError('The heads of the traction layers are 64 wide, so that '
                             f'head.in_channels must be a multiple of 64, got {dim}.')
        for name, value in dict(low=low, high=high).items():
            if value < 1:
                raise ValueError(f'head.{name} must be at least 1, got {value}.')
        if not 0 <= dropout < 1:
            raise ValueError(f'head.dropout must lie in [0, 1), got {dropout}.')
        self.counts = low, high
        self.aggregators = nn.ModuleList(aggregator(n, dim, dropout) for n in self.counts)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in self.counts)
        self.stages = nn.ModuleList(TractionLayer(dim, dropout) for _ in self.counts)
        self.scales = nn.ParameterList(torch.full((dim, ), float(scale)) for _ in self.counts)

    def remember(self, layers: list[Tensor]) -> Memory:
        """Keys and values of both stages, once for all texts of all paths.

        Args:
            layers (list[Tensor]): Projected tokens of layers, the lowest first, (B, L, D) each.
        """
        low, high = self.counts
        memory, dtype = [], self.scales[0].dtype
        for part, join, norm, stage in zip((layers[:low], layers[-high:]), self.aggregators,
                                           self.norms, self.stages):
            tokens = join(torch.cat([layer.to(dtype) for layer in part], dim=-1))
            memory.append(stage.keys_and_values(norm(tokens)))  # type: ignore[operator]
        return memory

    def forward(self, texts: Tensor, memory: Memory) -> Tensor:
        """Texts as each image sees them, unit norm, shape (B, T, D).

        Args:
            texts (Tensor): Unit norm, shape (T, D).
            memory (list): From :meth:`remember`, of B images.
        """
        q, total = texts[None].to(self.scales[0].dtype), texts.float()
        for stage, scale, (key, value) in zip(self.stages, self.scales, memory):
            q = stage(q, key, value)
            # The sum is what the cosines are made of: full precision under autocast, too.
            with torch.autocast(q.device.type, enabled=False):
                total = total + scale.float() * q.float()
        return F.normalize(total, dim=-1)


@MODELS.register_module()
class MSCIHead(TroikaHead):
    """Three paths whose texts interact with local, then with global features of the image.

    x_1 … x_N are the tokens after each block of the image tower, after CLIP's last norm and
    projection. With layers of cross-attention and MLP, the same for all paths,

        X_l = dropout(ReLU(norm(W_l [x_1; …; x_n])))     the first n blocks,
        X_h = dropout(ReLU(norm(W_h [x_(N−m+1); …; x_N])))  the last m,
        q_1 = layer_1(t, norm(X_l)),   q_2 = layer_2(q_1, norm(X_h)),
        t'  = unit(t + λ_1 ⊙ q_1 + λ_2 ⊙ q_2).

    Losses and scores are Troika's: cross-entropy of the three paths, and composition logits plus
    p(a) p(o).

    Args:
        *args: As in :class:`~mmcluspro.models.heads.TroikaHead`.
        low (int): n. Defaults to 3.
        high (int): m. Defaults to 3.
        dropout (float): Dropout rate of stages and aggregators. Defaults to 0.1.
        scale (float): Initial value of λ_1 and λ_2, vectors that learn. Defaults to 0.1.
        fusion (str): How scores are made. Defaults to 'logits', as published.
        **kwargs: As in :class:`~mmcluspro.models.heads.TroikaHead`.
    """

    fixed: tuple[str, ...] = ('traction', )

    def __init__(self, *args: Any, low: Annotated[int, integer(1, 256)] = 3,
                 high: Annotated[int, integer(1, 256)] = 3, dropout: Unsaved[float] = 0.1,
                 scale: Unsaved[float] = 0.1, fusion: Fusion = 'logits', **kwargs: Any) -> None:
        super().__init__(*args, fusion=fusion, traction=dict(
            type='mmcluspro.MultiStageTraction', low=low, high=high, dropout=dropout,
            scale=scale), **kwargs)

    def remember(self, features: Features) -> list[Memory]:
        """Keys and values of the low and high layers, the same for all paths."""
        numbers = sorted(int(name[6:]) for name in features.extra if name.startswith('layer_'))
        wanted = max(self.traction.counts)
        if len(numbers) < wanted:
            raise ValueError(
                f'MSCIHead reads {self.traction.counts[0]} low and {self.traction.counts[1]} high '
                f'layers of the image tower and got {len(numbers)} layers: set backbone.out_layers '
                'to the first and last blocks, such as [0, 1, 2, -3, -2, -1], with '
                'backbone.project_layers=True for CLIPVision, and a neck that hands them on, such '
                'as mmcluspro.PrimitiveAdapter.')
        layers = [features.extra[f'layer_{number}'] for number in numbers]
        width = self.traction.norms[0].normalized_shape[0]
        if layers[0].shape[-1] != width:
            raise ValueError(f'MSCIHead needs layers of width {width}, got '
                             f'{layers[0].shape[-1]}: set backbone.project_layers=True.')
        return [self.traction.remember(layers)] * len(PATHS)
