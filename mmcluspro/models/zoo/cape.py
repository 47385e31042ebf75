"""CAPE: pairs that attend to each other."""
from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.fields import Unsaved, Width, integer
from mmcluspro.models.text.words import WordTableText
from mmcluspro.registry import MODELS


@MODELS.register_module()
class CAPEText(WordTableText):
    r"""CAPE (Khan et al., "Learning Attention Propagation for CZSL", WACV 2023).

    With :math:`x = [w_a, w_o]` for each of the P pairs that are asked for together,

    .. math::
        z &= \mathrm{LN}(x), \quad u = \mathrm{LN}(z + A(z)), \\
        A(z) &= \mathrm{softmax}(Q K^\top) V / \sqrt{2 W} \; W_A, \quad [Q, K, V] = z W_{QKV}, \\
        v &= \mathrm{LN}(u + \mathrm{MLP}(u)), \quad t = \mathrm{ReLU}(v W_T)

    with several heads in A, and t scaled to unit norm. It is compared with the image feature by
    cosines, and the loss is the cross-entropy over the seen pairs: the composition path of
    :class:`~mmcluspro.models.heads.ThreePathHead`. The published code divides by
    :math:`\sqrt{2 W}` after the softmax, which is kept here.

    **The embedding of a pair depends on the other pairs that are asked for with it**, as in the
    published code: training attends to the seen pairs, the closed world to its pairs, and the open
    world to all. A list of your own pairs is a set of its own, too.

    Args:
        out_dim (int): Width of the features, that of the image side. Defaults to 512.
        num_heads (int): Heads of the attention; divides two word vectors. Defaults to 6.
        hidden_dim (int): Of the MLP. Defaults to 4096.
        dropout (float): On the attention and the branches. Defaults to 0.1.
        hidden_dropout (float): Inside the MLP and before the last layer. Defaults to 0.5.
        **kwargs: As in :class:`~mmcluspro.models.text.WordTableText`.
    """

    def __init__(self, out_dim: Width = 512, num_heads: Annotated[int, integer(1, 256)] = 6,
                 hidden_dim: Width = 4096, dropout: Unsaved[float] = 0.1,
                 hidden_dropout: Unsaved[float] = 0.5, **kwargs: Any) -> None:
        super().__init__(out_dim=out_dim, **kwargs)
        width = 2 * self.width
        if num_heads < 1 or width % num_heads:
            raise ValueError(f'text.num_heads must divide {width}, the width of two word vectors, '
                             f'got {num_heads}.')
        self.num_heads, self.attn_dropout = num_heads, dropout
        self.norm_in = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.attn_proj = nn.Linear(width, width)
        self.norm_attn = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden_dim), nn.ReLU(),
                                 nn.Dropout(hidden_dropout), nn.Linear(hidden_dim, width))
        self.norm_mlp = nn.LayerNorm(width)
        self.branch_dropout = nn.Dropout(dropout)
        self.last = nn.Sequential(nn.Dropout(hidden_dropout), nn.Linear(width, out_dim), nn.ReLU())

    def embed(self, path: str, parts: tuple[Tensor, Tensor], pairs: Tensor | None) -> Tensor:
        if path != 'composition' or pairs is None:
            return super().embed(path, parts, pairs)
        self._check_range(pairs)
        # The pairs attend to each other: they are one set, not chunks.
        units = F.normalize(parts[0], dim=1), F.normalize(parts[1], dim=1)
        z = self.norm_in(self.compose(units, pairs.to(parts[0].device)))
        query, key, value = self.qkv(z).unflatten(1, (3, self.num_heads, -1)).unbind(1)
        heard = torch.cat([self._attend(chunk, key, value)
                           for chunk in query.split(self.chunk_size)])
        u = self.norm_attn(z + self.branch_dropout(self.attn_proj(heard)))
        v = self.norm_mlp(u + self.branch_dropout(self.mlp(u)))
        return self.last(v)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Queries (n, heads, d) over keys and values (P, heads, d), shape (n, 2 W)."""
        q, k, v = (part.transpose(0, 1)[None] for part in (query, key, value))
        found = F.scaled_dot_product_attention(
            q, k, v, scale=1.0, dropout_p=self.attn_dropout if self.training else 0.0)
        return found[0].transpose(0, 1).flatten(1) / math.sqrt(2 * self.width)
