"""Low-rank adaptation (LoRA) of a linear layer: W + alpha / rank · B A, with W frozen.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models".
"""
import math
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
        """Takes the updates out again; see ``unmerge``."""
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
