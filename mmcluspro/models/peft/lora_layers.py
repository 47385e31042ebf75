"""LoRA of linear layers and of attention: W + alpha / rank · B A, with W frozen.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models". In multi-head attention, q, k and
v share one packed matrix.
"""
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .injection import Injected


class LowRank(Injected):
    """The update of one matrix: x → scale · B A dropout(x), zero at the start.

    Args:
        weight (Tensor): The matrix it updates, shape (out, in); gives device and dtype.
        rank (int): Rows of A.
        scale (float): Factor of the product.
        drop_rate (float): Dropout on x.
    """

    def __init__(self, weight: Tensor, rank: int, scale: float, drop_rate: float) -> None:
        super().__init__()
        self.scale = scale
        self.merged = False
        self.drop = nn.Dropout(drop_rate)
        self.a = nn.Parameter(weight.new_empty(rank, weight.shape[1]))
        self.b = nn.Parameter(weight.new_zeros(weight.shape[0], rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def train(self, mode: bool = True) -> 'LowRank':
        if mode and self.merged:
            raise RuntimeError('LoRA is merged into the weights; call unmerge() before training.')
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) → (..., out)."""
        if self.training and self.drop.p and torch.is_grad_enabled():
            # Draws the mask again in backward: neither it nor the dropped copy of x is kept.
            low = checkpoint(self._down, x, use_reentrant=False)
        else:
            low = self._down(x)
        # Scaled in the middle, where there are few channels.
        return F.linear(low * self.scale, self.b)

    def _down(self, x: Tensor) -> Tensor:
        """x (..., in) → (..., rank)."""
        return F.linear(self.drop(x), self.a)

    def delta(self) -> Tensor:
        """The update as a matrix, float32, shape (out, in)."""
        return self.scale * (self.b.detach().float() @ self.a.detach().float())


class LoRALayer(nn.Module):
    """Base of layers with updates: merging, and state dicts that stay those of the frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, Tensor] = {}
        self._register_state_dict_hook(_save_unmerged)
        self._register_load_state_dict_pre_hook(_refuse_merged, with_module=True)

    def updates(self) -> list[tuple[str, slice, LowRank]]:
        """(name of a parameter, its rows, their update), for each update."""
        raise NotImplementedError

    @property
    def merged(self) -> bool:
        """Whether the weights contain the updates."""
        return any(update.merged for _, _, update in self.updates())

    @torch.no_grad()
    def merge(self, keep: bool = True) -> None:
        """Adds the updates to the weights; see ``merge``."""
        if self.merged:
            return
        if any(update.training for _, _, update in self.updates()):
            raise RuntimeError('LoRA can only be merged in evaluation; call eval() first.')
        if keep:
            self._kept = {name: getattr(self, name).detach().clone()
                          for name, _, _ in self.updates()}
        for name, rows, update in self.updates():
            weight = getattr(self, name)
            weight[rows] = (weight[rows].float() + update.delta()).to(weight.dtype)
            update.merged = True

    @torch.no_grad()
    def unmerge(self) -> None:
        """Removes the updates again; see ``unmerge``."""
        if not self.merged:
            return
        for name, weight in self.frozen_weights().items():
            getattr(self, name).copy_(weight)
        self._kept = {}
        for _, _, update in self.updates():
            update.merged = False

    def frozen_weights(self) -> dict[str, Tensor]:
        """The weights without the updates, whether merged or not."""
        weights = {name: self._kept.get(name, getattr(self, name).detach())
                   for name, _, _ in self.updates()}
        if self.merged and not self._kept:
            weights = {name: weight.clone() for name, weight in weights.items()}
            for name, rows, update in self.updates():
                weight = weights[name]
                weight[rows] = (weight[rows].float() - update.delta()).to(weight.dtype)
        return weights


class LoRALinear(LoRALayer):
    """A linear layer with an update, under the parameter names of ``nn.Linear``."""

    bias: Tensor | None

    def __init__(self, linear: nn.Linear, **kwargs: Any) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = linear.weight
        self.register_parameter('bias', linear.bias)
        self.lora = LowRank(linear.weight, **kwargs)

    def updates(self) -> list[tuple[str, slice, LowRank]]:
        return [('weight', slice(None), self.lora)]

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) → (..., out)."""
        y = F.linear(x, self.weight, self.bias)
        return y if self.lora.merged else y + self.lora(x)


def _save_unmerged(layer: LoRALayer, state_dict: dict, prefix: str, metadata: Any) -> None:
    # The updates are saved, too: with merged weights they would count twice after loading.
    if layer.merged:
        state_dict.update({prefix + name: weight
                           for name, weight in layer.frozen_weights().items()})


def _refuse_merged(layer: LoRALayer, *rest: Any) -> None:
    if layer.merged:
        raise RuntimeError('LoRA is merged into the weights; call unmerge() before loading.')


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
