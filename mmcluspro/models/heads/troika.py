"""Troika: the three-path head with texts that are drawn towards the patches of each image.

Huang et al., "Troika: Multi-Path Cross-Modal Traction for Compositional Zero-Shot Learning".
"""
from __future__ import annotations

from typing import Annotated, Any

import torch
from open_clip.transformer import QuickGELU
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from mmcluspro.fields import Options, Unsaved, Width, integer, number
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.structures import PATHS, Features, Logits, Texts
from mmcluspro.registry import MODELS

from .base import CompositionHead, Portable
from .three_path import ThreePathHead

HEAD_WIDTH = 64
Memory = list[tuple[Tensor, Tensor]]


class TractionLayer(nn.Module):
    """q ← q + attention(q, patches), then q ← q + MLP(norm(q)).

    Keys and values depend on the image only, so that they are computed apart, once for all texts.

    Args:
        dim (int): Width D of texts and patches, a multiple of 64, the width of a head.
        dropout (float): Dropout rate after the attention and in the MLP.
    """

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.out = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), QuickGELU(), nn.Dropout(dropout), nn.Linear(4 * dim, dim))
        self.drop = nn.Dropout(dropout)

    def keys_and_values(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        """Patches (B, L, D) → two tensors of shape (B, heads, L, 64)."""
        return _heads(self.key(patches)), _heads(self.value(patches))

    def forward(self, q: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """q (B, T, D), or (1, T, D) for texts that are the same for all images → (B, T, D)."""
        query = _heads(self.query(q)).expand(len(key), -1, -1, -1)
        read = F.scaled_dot_product_attention(query, key, value)
        q = q + self.drop(self.out(read.transpose(1, 2).flatten(2)))
        return q + self.drop(self.mlp(self.norm(q)))


@MODELS.register_module()
class CrossModalTraction(nn.Module):
    """text' = normalise(text + λ ⊙ traction(text, patches)), the same layers for all paths.

    Args:
        dim (int): Width D of texts and patches.
        num_layers (int): Number of layers. Defaults to 2.
        dropout (float): Dropout rate in the layers. Defaults to 0.0.
        scale (float): Initial value of λ, a vector of width D that learns. Defaults to 0.1.
        repeat_norm (bool): The norm of the patches once for compositions, twice for attributes and
            three times for objects, as in the released code. Defaults to False, once.
    """

    def __init__(self, dim: Unsaved[int], num_layers: Annotated[int, integer(1, 32)] = 2,
                 dropout: Unsaved[float] = 0.0,
                 scale: Annotated[float, number(-1e6, 1e6)] = 0.1,
                 repeat_norm: bool = False) -> None:
        super().__init__()
        if dim % HEAD_WIDTH:
            raise ValueError(
                f'The heads of the traction layers are {HEAD_WIDTH} wide, so that '
                f'head.in_channels must be a multiple of {HEAD_WIDTH}, got {dim}.')
        if num_layers < 1:
            raise ValueError(f'head.traction.num_layers must be at least 1, got {num_layers}.')
        if not 0 <= dropout < 1:
            raise ValueError(f'head.traction.dropout must lie in [0, 1), got {dropout}.')
        self.repeat_norm = repeat_norm
        self.norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList([TractionLayer(dim, dropout) for _ in range(num_layers)])
        self.scale = nn.Parameter(torch.full((dim, ), float(scale)))

    def remember(self, tokens: Tensor, norms: int = 1) -> Memory:
        """Keys and values of each layer, once for all texts.

        Args:
            tokens (Tensor): Projected tokens of the images, shape (B, L, D).
            norms (int): How often their norm is applied. Defaults to 1.
        """
        patches = tokens.to(self.scale.dtype)
        for _ in range(norms):
            patches = self.norm(patches)
        return [layer.keys_and_values(patches) for layer in self.layers]  # type: ignore[operator]

    def forward(self, texts: Tensor, memory: Memory) -> Tensor:
        """Texts as each image sees them.

        Args:
            texts (Tensor): Unit norm, shape (T, D).
            memory (list): From :meth:`remember`, of B images.

        Returns:
            Tensor: Unit norm, float32, shape (B, T, D).
        """
        q = texts[None].to(self.scale.dtype)
        for layer, (key, value) in zip(self.layers, memory):
            q = layer(q, key, value)
        # The sum is what the cosines are made of: full precision under autocast, too.
        with torch.autocast(q.device.type, enabled=False):
            return F.normalize(texts.float() + self.scale.float() * q.float(), dim=-1)


def _heads(x: Tensor) -> Tensor:
    """(B, L, D) → (B, D / 64, L, 64)."""
    return x.unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2)


@MODELS.register_module()
class TroikaHead(ThreePathHead):
    """The three-path head with cross-modal traction of the texts.

    Every image has its own texts, B · T vectors of width D for B images and T texts. They are
    computed, compared and dropped in chunks, so memory beyond the scores does not grow with T.

    Args:
        *args: As in :class:`ThreePathHead`.
        in_channels (int): Width D of features, tokens and texts.
        traction (dict, optional): Fields of :class:`CrossModalTraction` (num_layers, dropout,
            scale). Defaults to None, its own defaults.
        chunk_size (int): Number of vectors (images times texts) that are computed together; their
            activations take about 70 · D bytes each. Defaults to 16384.
        with_cp (bool): Recompute the activations of a chunk in the backward pass, so that training
            needs the memory of one chunk. Defaults to False.
        **kwargs: As in :class:`ThreePathHead`.
    """

    def __init__(self, *args: Any, in_channels: Width,
                 traction: Annotated[dict | None, Options(CrossModalTraction)] = None,
                 chunk_size: Unsaved[int] = 16384, with_cp: Unsaved[bool] = False,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if chunk_size < 1:
            raise ValueError(f'head.chunk_size must be at least 1, got {chunk_size}.')
        self.traction = MODELS.build(
            {'type': 'mmcluspro.CrossModalTraction', **(traction or {}), 'dim': in_channels})
        self.chunk_size = chunk_size
        self.with_cp = with_cp

    def compare(self, features: Features, texts: Texts, candidates: Candidates) -> Logits:
        """Cosines over temperature, each image with its own texts.

        Args:
            features (Features): With the projected tokens of the images, shape (B, L, D).
            texts (Texts): Unit-norm texts of the requested paths.
            candidates (Candidates): Not used.
        """
        pairs = self.matched(features, texts)
        return Logits._make(
            None if pair is None else self._stream(*pair, memory)
            for pair, memory in zip(pairs, self.remember(features)))

    def remember(self, features: Features) -> list[Memory]:
        """Keys and values of the images, which the texts of each path attend to."""
        if features.tokens is None:
            raise ValueError(
                'TroikaHead needs the tokens of the image tower: set backbone.out_tokens=True, '
                'with a neck that hands the tokens on, such as mmcluspro.PrimitiveAdapter.')
        if not self.traction.repeat_norm:
            return [self.traction.remember(features.tokens)] * len(PATHS)
        return [self.traction.remember(features.tokens, norms) for norms in (2, 3, 1)]

    def portable(self) -> Portable:
        """Not supported: a table cannot contain separate texts for every image."""
        return CompositionHead.portable(self)

    def _stream(self, features: Tensor, texts: Tensor, memory: Memory) -> Tensor:
        """Logits (B, T), a few texts at a time."""
        chunks = texts.split(max(1, self.chunk_size // max(1, len(features))))
        if self.with_cp and torch.is_grad_enabled():
            return torch.cat([
                checkpoint(self._logits_of, features, chunk, memory, use_reentrant=False)
                for chunk in chunks], dim=1)
        return torch.cat([self._logits_of(features, chunk, memory) for chunk in chunks], dim=1)

    def _logits_of(self, features: Tensor, texts: Tensor, memory: Memory) -> Tensor:
        drawn = self.traction(texts, memory)
        with torch.autocast(features.device.type, enabled=False):
            unit = F.normalize(features.float(), dim=1)
            return self.text.logit_scale.exp() * torch.bmm(drawn, unit[:, :, None])[:, :, 0]
