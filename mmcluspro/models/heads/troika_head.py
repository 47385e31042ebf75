"""Troika: the three-path head with text features that depend on the image."""
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from mmcluspro.registry import MODELS

from ..candidates import Candidates
from ..structures import Features, Logits, Texts
from .base_head import CompositionHead
from .portable import Portable
from .three_path_head import ThreePathHead
from .traction import Memory


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

    def __init__(self,
                 *args: Any,
                 in_channels: int,
                 traction: dict | None = None,
                 chunk_size: int = 16384,
                 with_cp: bool = False,
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
        memory = self.remember(features)
        pairs = self.matched(features, texts)
        return Logits._make(
            None if pair is None else self._stream(*pair, memory) for pair in pairs)

    def remember(self, features: Features) -> Memory:
        """Keys and values of the images, which the texts attend to."""
        if features.tokens is None:
            raise ValueError(
                'TroikaHead needs the tokens of the image tower: set backbone.out_tokens=True, '
                'with a neck that hands the tokens on, such as mmcluspro.PrimitiveAdapter.')
        return self.traction.remember(features.tokens)

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
