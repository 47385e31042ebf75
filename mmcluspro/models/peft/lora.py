"""LoRA: W + alpha / rank · B A with W frozen, put into a tower by name patterns, and merged away.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models". This is how the paper tunes the
image encoder (appendix, "Visual Feature Extraction"). In multi-head attention, q, k and v share one
packed matrix.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Protocol

import torch
from open_clip.modified_resnet import AttentionPool2d
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from mmcluspro.fields import Unsaved, integer, items, number, text
from mmcluspro.registry import MODELS


class Injector(Protocol):
    """Interface for ``inject``, implemented by ``LoRA`` and ``Bottleneck``."""

    def inject(self, module: nn.Module) -> list[str]:
        """Changes ``module`` in place and returns the names of the targets."""
        ...


class Injected(nn.Module):
    """Base of what is injected: follows ``train()`` where the tower around it does not."""


def inject(module: nn.Module, cfg: dict | Injector) -> list[str]:
    """Injects what ``cfg`` describes into ``module``, in place.

    Args:
        module (nn.Module): The tower. Freeze it first: only what exists then is frozen.
        cfg (dict | Injector): ``dict(type='mmcluspro.LoRA', ...)`` or
            ``dict(type='mmcluspro.Bottleneck', ...)``.

    Returns:
        list[str]: Names of the targets that were changed.
    """
    injector: Any = MODELS.build(dict(cfg)) if isinstance(cfg, dict) else cfg
    if not hasattr(injector, 'inject'):
        raise ValueError(
            f"peft must be of type 'mmcluspro.LoRA' or 'mmcluspro.Bottleneck', got {cfg}.")
    return injector.inject(module)


def injected_modules(module: nn.Module) -> list[Injected]:
    """All injected modules below ``module``."""
    return [child for child in module.modules() if isinstance(child, Injected)]


def match_targets(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Names matched by any pattern.

    A pattern is a shell pattern (``*``, ``?``, ``[...]``) for the whole dotted name or for its
    end after a dot: ``'attn.q'`` is the query projection of every block,
    ``'resblocks.2[0-3].attn.*'`` all of attention in the last four of 24.

    Args:
        names (Iterable[str]): Names there are.
        patterns (Sequence[str]): Patterns, each of which must match something.

    Returns:
        list[str]: The matched names in their order.
    """
    names = list(names)
    if isinstance(patterns, str) or not patterns:
        raise ValueError(f'peft.targets must be a list of name patterns, got {patterns!r}.')
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            raise ValueError(
                f'peft.targets: {pattern!r} matches nothing. There are: '
                f'{", ".join(_summary(names)) or "no targets in this tower"}.')
    return [name for name in names if any(_matches(name, pattern) for pattern in patterns)]


def replace_module(root: nn.Module, name: str, new: nn.Module) -> None:
    """Puts ``new`` at the dotted ``name``, in the training mode of what was there."""
    parent_name, _, child = name.rpartition('.')
    parent = root.get_submodule(parent_name)
    new.train(getattr(parent, child).training)
    setattr(parent, child, new)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f'*.{pattern}')


def _summary(names: Iterable[str]) -> list[str]:
    """Names with their numbers replaced by ``*``: the 24 blocks of a tower read as one."""
    return list(dict.fromkeys(
        '.'.join('*' if part.isdigit() else part for part in name.split('.')) for name in names))


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

    def train(self, mode: bool = True) -> LowRank:
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


TARGETS = ('attn.q', 'attn.k', 'attn.v', 'attn.out_proj', 'mlp.c_fc', 'mlp.c_proj')
# These read the matrices of their linear layers and never call them, so that updates of one would
# be silently ignored.
READERS = (nn.MultiheadAttention, AttentionPool2d)


Targets = Annotated[Sequence[str], items(text(100), 1, 50)]


@MODELS.register_module()
class LoRA:
    """Adds LoRA to linear layers and to the projections inside ``nn.MultiheadAttention``.

    Args:
        rank (int): Rank of the updates. Defaults to 16.
        alpha (float): The update is scaled by ``alpha / rank``. Defaults to 16.
        drop_rate (float): Dropout on the input of the update. Defaults to 0.
        targets (Sequence[str]): Name patterns, see ``match_targets``. Every ``nn.Linear`` is a
            target under its own name; attention has ``q``, ``k``, ``v`` besides its ``out_proj``.
            Defaults to attention and MLP of open_clip's blocks.
    """

    def __init__(self, rank: Annotated[int, integer(1, 1024)] = 16,
                 alpha: Annotated[float, number(0, 1e6)] = 16.0, drop_rate: Unsaved[float] = 0.0,
                 targets: Targets = TARGETS) -> None:
        if rank < 1:
            raise ValueError(f'peft.rank must be at least 1, got {rank}; for none set peft=None.')
        if not 0 <= drop_rate < 1:
            raise ValueError(f'peft.drop_rate must lie in [0, 1), got {drop_rate}.')
        self.targets = targets
        self.options: dict[str, Any] = dict(rank=rank, scale=alpha / rank, drop_rate=drop_rate)

    def inject(self, module: nn.Module) -> list[str]:
        names, attentions = self._find(module)
        matched = match_targets(names, self.targets)
        parts: dict[str, list[str]] = {}
        for target in matched:
            owner, _, part = target.rpartition('.')
            if owner in attentions:
                # Also for out_proj alone, see READERS.
                parts.setdefault(owner, []).append(part)
            if not (owner in attentions and part in PARTS):
                linear: Any = module.get_submodule(target)
                replace_module(module, target, LoRALinear(linear, **self.options))
        for owner, chosen in parts.items():
            inputs = [part for part in chosen if part in PARTS]
            replace_module(module, owner, LoRAAttention(attentions[owner], inputs, **self.options))
        return matched

    @staticmethod
    def _find(module: nn.Module) -> tuple[list[str], dict[str, nn.MultiheadAttention]]:
        """Names of the targets there are, and attention by name."""
        names: list[str] = []
        attentions: dict[str, nn.MultiheadAttention] = {}
        for name, layer in module.named_modules():
            parent = module.get_submodule(name.rpartition('.')[0])
            if adaptable_attention(layer):
                attentions[name] = layer  # type: ignore[assignment]
                names += [f'{name}.{part}' for part in (*PARTS, 'out_proj')]
            elif isinstance(layer, nn.Linear) and not isinstance(parent, READERS):
                names.append(name)
        return names, attentions


def merge(module: nn.Module, keep: bool = True) -> int:
    """Folds all LoRA updates below ``module`` into the weights: inference costs nothing extra.

    Args:
        module (nn.Module): Must be in eval mode.
        keep (bool): Keep the frozen weights aside, so that ``unmerge`` restores them bit by bit.
            False saves that memory; they then return to within rounding. Defaults to True.

    Returns:
        int: Number of layers with updates.
    """
    layers = [layer for layer in module.modules() if isinstance(layer, LoRALayer)]
    for layer in layers:
        layer.merge(keep)
    return len(layers)


def unmerge(module: nn.Module) -> int:
    """Undoes ``merge``. Returns the number of layers with updates."""
    layers = [layer for layer in module.modules() if isinstance(layer, LoRALayer)]
    for layer in layers:
        layer.unmerge()
    return len(layers)
