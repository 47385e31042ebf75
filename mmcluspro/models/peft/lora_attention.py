"""LoRA inside multi-head attention, whose q, k and v share one packed matrix."""
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .lora_layers import LoRALayer, LoRALinear, LowRank

PARTS = ('q', 'k', 'v')


def adaptable_attention(layer: nn.Module) -> bool:
    """Whether ``LoRAAttention`` can stand in for a layer."""
    return (isinstance(layer, nn.MultiheadAttention) and layer.in_proj_weight is not None
            and layer.bias_k is None and not layer.add_zero_attn)


class LoRAAttention(LoRALayer):
    """``nn.MultiheadAttention`` with updates of q, k, v, and the same parameter names.

    The updates act on activations, W x + scale · B A x, and attention stays fused
    (``scaled_dot_product_attention``); no adapted matrix is ever built.

    Args:
        attention (nn.MultiheadAttention): Its parameters and output projection (possibly a
            ``LoRALinear``) are taken over.
        parts (Sequence[str]): Which of 'q', 'k', 'v' get an update.
        **kwargs: ``rank``, ``scale`` and ``drop_rate`` of ``LowRank``.
    """

    in_proj_bias: Tensor | None
    lora: Any

    def __init__(self, attention: nn.MultiheadAttention, parts: Sequence[str],
                 **kwargs: Any) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = attention.embed_dim, attention.num_heads
        self.dropout, self.batch_first = attention.dropout, attention.batch_first
        self.in_proj_weight = attention.in_proj_weight
        self.register_parameter('in_proj_bias', attention.in_proj_bias)
        self.out_proj: nn.Linear | LoRALinear = attention.out_proj
        self.lora = nn.ModuleDict({
            part: LowRank(self.in_proj_weight[self._rows(part)], **kwargs) for part in parts})

    def updates(self) -> list[tuple[str, slice, LowRank]]:
        return [('in_proj_weight', self._rows(part), update)
                for part, update in self.lora.items()]

    def forward(self, query: Tensor, key: Tensor, value: Tensor,
                key_padding_mask: Tensor | None = None, need_weights: bool = False,
                attn_mask: Tensor | None = None) -> tuple[Tensor, None]:
        """Attention as ``nn.MultiheadAttention``, without its weights.

        Args:
            query (Tensor): Shape (B, L, D), or (L, B, D) without ``batch_first``.
            key (Tensor): Shape (B, S, D) likewise.
            value (Tensor): Like ``key``.
            key_padding_mask (None): Not supported.
            need_weights (bool): Must be False: fused attention has none.
            attn_mask (Tensor | None): Added to the logits, or bool with True where attention
                is barred; shape (L, S) or (B * heads, L, S).

        Returns:
            tuple[Tensor, None]: Shape of ``query``, and None for the weights.
        """
        if need_weights or key_padding_mask is not None:
            raise ValueError('LoRAAttention has neither need_weights nor key_padding_mask.')
        q, k, v = self._project(query, key, value)
        if not self.batch_first:
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        batch, length, _ = q.shape
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (q, k, v))
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = ~attn_mask  # the fused form marks what may be attended to
            else:
                attn_mask = attn_mask.to(q.dtype)
            if attn_mask.ndim == 3:
                attn_mask = attn_mask.unflatten(0, (batch, self.num_heads))
        x = F.scaled_dot_product_attention(
            q, k, v, attn_mask=attn_mask, dropout_p=self.dropout if self.training else 0.0)
        x = self.out_proj(x.transpose(1, 2).reshape(batch, length, self.embed_dim))
        return (x if self.batch_first else x.transpose(0, 1)), None

    def _project(self, *inputs: Tensor) -> list[Tensor]:
        """q, k and v with their updates."""
        if inputs[0] is inputs[1] and inputs[1] is inputs[2]:
            packed = F.linear(inputs[0], self.in_proj_weight, self.in_proj_bias)
            outputs = list(packed.chunk(3, dim=-1))
        else:
            biases = (None, ) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
            outputs = [F.linear(x, weight, bias) for x, weight, bias in
                       zip(inputs, self.in_proj_weight.chunk(3), biases)]
        if self.merged:
            return outputs
        return [y + self.lora[part](x) if part in self.lora else y
                for part, x, y in zip(PARTS, inputs, outputs)]

    def _rows(self, part: str) -> slice:
        start = PARTS.index(part) * self.embed_dim
        return slice(start, start + self.embed_dim)
