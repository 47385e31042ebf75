"""LoRA: W + alpha / rank · B A with W frozen, put into a tower by kind or name, and merged away.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models". This is how the paper tunes the
image encoder (appendix, "Visual Feature Extraction"). Where q, k and v share one packed matrix,
each has an update of its own rows.
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


class FastDropout(nn.Dropout):
    """Dropout whose masks cost a quarter on the CPU: four numbers of 16 bits per draw.

    The rate is rounded to a multiple of 2**-16, and what is kept is scaled by exactly that.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape → the same shape."""
        if not self.training or not self.p or x.device.type != 'cpu' or (
                torch.compiler.is_compiling()):
            return super().forward(x)
        dropped = round(self.p * 2**16)
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-2**63, None)
        mask = (bits.view(torch.int16)[:x.numel()] < dropped - 2**15).view(x.shape)
        return x.masked_fill(mask, 0) * (2**16 / (2**16 - dropped))


class LowRank(Injected):
    """The update of one matrix: x → scale · B A dropout(x), zero at the start.

    Args:
        weight (Tensor): The matrix it updates, shape (out, in, …); gives device and dtype.
        rank (int): Rows of A.
        scale (float): Factor of the product.
        drop_rate (float): Dropout on x.
    """

    def __init__(self, weight: Tensor, rank: int, scale: float, drop_rate: float) -> None:
        super().__init__()
        self.scale = scale
        self.merged = False
        self.drop = FastDropout(drop_rate)
        # False inside a block that is computed again as a whole in backward.
        self.recompute = True
        self.a = nn.Parameter(weight.new_empty(rank, weight.shape[1]))
        self.b = nn.Parameter(weight.new_zeros(weight.shape[0], rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def train(self, mode: bool = True) -> LowRank:
        if mode and self.merged:
            raise RuntimeError('LoRA is merged into the weights; call unmerge() before training.')
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) → (..., out)."""
        return low_rank_updates([self], x)[0]

    def delta(self) -> Tensor:
        """The update as a matrix, float32, shape (out, in)."""
        return self.scale * (self.b.detach().float() @ self.a.detach().float())


def low_rank_updates(updates: Sequence[LowRank], x: Tensor) -> list[Tensor]:
    """Updates of several matrices that read the same input; they share one mask of dropout.

    Args:
        updates (Sequence[LowRank]): Of one rank, scale and rate.
        x (Tensor): Shape (..., in).

    Returns:
        list[Tensor]: Shape (..., out) each.
    """
    first = updates[0]
    if not (first.training and first.drop.p):
        return [update_of(F.linear(x, update.a), update) for update in updates]

    def down(x: Tensor) -> Tensor:
        rows = first.a if len(updates) == 1 else torch.cat([update.a for update in updates])
        return F.linear(first.drop(x), rows)

    # Draws the mask again in backward: neither it nor the dropped copy of x is kept.
    low = checkpoint(down, x, use_reentrant=False) if (
        first.recompute and torch.is_grad_enabled()) else down(x)
    return [update_of(part, update) for part, update in zip(low.chunk(len(updates), -1), updates)]


def update_of(low: Tensor, update: LowRank) -> Tensor:
    """(..., rank) → (..., out); scaled here, where there are few channels."""
    return F.linear(low * update.scale, update.b)


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
            weight = getattr(self, name)[rows]
            weight.copy_(weight.float() + update.delta().view_as(weight))
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
                weight = weights[name][rows]
                weight.copy_(weight.float() - update.delta().view_as(weight))
        return weights


class LoRALinear(LoRALayer):
    """A linear layer with an update, under the parameter names of ``nn.Linear``."""

    bias: Tensor | None

    def __init__(self, linear: nn.Linear | nn.Conv2d, **kwargs: Any) -> None:
        super().__init__()
        self.weight = linear.weight
        self.register_parameter('bias', linear.bias)  # type: ignore[arg-type]
        self.lora = LowRank(linear.weight, **kwargs)

    def updates(self) -> list[tuple[str, slice, LowRank]]:
        return [('weight', slice(None), self.lora)]

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) → (..., out)."""
        y = F.linear(x, self.weight, self.bias)
        return y if self.lora.merged else y + self.lora(x)


class LoRAPointwise(LoRALinear):
    """A convolution of single pixels with an update, under the parameter names of ``nn.Conv2d``."""

    def forward(self, x: Tensor) -> Tensor:
        """x (B, in, H, W) → (B, out, H, W)."""
        y = F.conv2d(x, self.weight, self.bias)
        return y if self.lora.merged else y + self.lora(x.movedim(1, -1)).movedim(-1, 1)


class LoRAPacked(LoRALayer):
    """A linear layer that makes q, k and v at once, with updates of some of them.

    Args:
        linear (nn.Linear): Its first third of rows makes q, the second k, the last v.
        parts (Sequence[str]): Which of 'q', 'k', 'v' get an update.
        **kwargs: ``rank``, ``scale`` and ``drop_rate`` of ``LowRank``.
    """

    bias: Tensor | None
    lora: Any

    def __init__(self, linear: nn.Linear, parts: Sequence[str], **kwargs: Any) -> None:
        super().__init__()
        self.weight = linear.weight
        self.register_parameter('bias', linear.bias)
        self.lora = nn.ModuleDict({
            part: LowRank(rows, **kwargs)
            for part, rows in zip(PARTS, linear.weight.chunk(3)) if part in parts})

    def updates(self) -> list[tuple[str, slice, LowRank]]:
        return [('weight', part_rows(part, len(self.weight) // 3), update)
                for part, update in self.lora.items()]

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) → (..., 3 · width)."""
        y = F.linear(x, self.weight, self.bias)
        if self.merged:
            return y
        added = dict(zip(self.lora, low_rank_updates([*self.lora.values()], x)))
        return torch.cat([part + added[name] if name in added else part
                          for name, part in zip(PARTS, y.chunk(3, -1))], dim=-1)


def _save_unmerged(layer: LoRALayer, state_dict: dict, prefix: str, metadata: Any) -> None:
    # The updates are saved, too: with merged weights they would count twice after loading.
    if layer.merged:
        state_dict.update({prefix + name: weight
                           for name, weight in layer.frozen_weights().items()})


def _refuse_merged(layer: LoRALayer, *rest: Any) -> None:
    if layer.merged:
        raise RuntimeError('LoRA is merged into the weights; call unmerge() before loading.')


PARTS = ('q', 'k', 'v')


def part_rows(part: str, width: int) -> slice:
    """The rows of q, k or v in a packed matrix."""
    start = PARTS.index(part) * width
    return slice(start, start + width)


def adaptable_attention(layer: nn.Module) -> bool:
    """Whether ``FusedAttention`` can stand in for a layer."""
    return (isinstance(layer, nn.MultiheadAttention) and layer.in_proj_weight is not None
            and layer.bias_k is None and not layer.add_zero_attn)


class FusedAttention(nn.Module):
    """``nn.MultiheadAttention`` with the same parameter names, as one product and fused attention.

    With frozen weights and a gradient, torch's own makes the input projection a batch of products
    with an expanded weight, which takes half of the time of a tower.

    Args:
        attention (nn.MultiheadAttention): Its parameters and output projection (possibly a
            ``LoRALinear``) are taken over.
    """

    in_proj_bias: Tensor | None

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = attention.embed_dim, attention.num_heads
        self.dropout, self.batch_first = attention.dropout, attention.batch_first
        self.in_proj_weight = attention.in_proj_weight
        self.register_parameter('in_proj_bias', attention.in_proj_bias)
        self.out_proj: nn.Linear | LoRALinear = attention.out_proj

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
            raise ValueError('Fused attention has neither need_weights nor key_padding_mask.')
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
        """q, k and v."""
        if inputs[0] is inputs[1] and inputs[1] is inputs[2]:
            packed = F.linear(inputs[0], self.in_proj_weight, self.in_proj_bias)
            return list(packed.chunk(3, dim=-1))
        biases = (None, ) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [F.linear(x, weight, bias) for x, weight, bias in
                zip(inputs, self.in_proj_weight.chunk(3), biases)]


class LoRAAttention(FusedAttention, LoRALayer):
    """``nn.MultiheadAttention`` with updates of q, k, v, and the same parameter names.

    The updates act on activations, W x + scale · B A x; no adapted matrix is ever built.

    Args:
        attention (nn.MultiheadAttention): As in :class:`FusedAttention`.
        parts (Sequence[str]): Which of 'q', 'k', 'v' get an update.
        **kwargs: ``rank``, ``scale`` and ``drop_rate`` of ``LowRank``.
    """

    lora: Any

    def __init__(self, attention: nn.MultiheadAttention, parts: Sequence[str],
                 **kwargs: Any) -> None:
        super().__init__(attention)
        self.lora = nn.ModuleDict({
            part: LowRank(self.in_proj_weight[part_rows(part, self.embed_dim)], **kwargs)
            for part in parts})

    def updates(self) -> list[tuple[str, slice, LowRank]]:
        return [('in_proj_weight', part_rows(part, self.embed_dim), update)
                for part, update in self.lora.items()]

    def _project(self, *inputs: Tensor) -> list[Tensor]:
        """q, k and v with their updates."""
        outputs = super()._project(*inputs)
        if self.merged or not self.lora:
            return outputs
        if inputs[0] is inputs[1] and inputs[1] is inputs[2]:
            added = dict(zip(self.lora, low_rank_updates([*self.lora.values()], inputs[0])))
        else:
            added = {part: self.lora[part](x) for part, x in zip(PARTS, inputs)
                     if part in self.lora}
        return [y + added[part] if part in added else y for part, y in zip(PARTS, outputs)]


def fuse_attention(module: nn.Module) -> None:
    """Puts :class:`FusedAttention` in the place of frozen ``nn.MultiheadAttention`` below it."""
    for name, layer in [*module.named_modules()]:
        if adaptable_attention(layer) and not layer.in_proj_weight.requires_grad:  # type: ignore
            replace_module(module, name, FusedAttention(layer))  # type: ignore[arg-type]


# These read the matrices of their linear layers and never call them, so that updates of one would
# be silently ignored.
READERS = (nn.MultiheadAttention, AttentionPool2d)


def pointwise(layer: nn.Module) -> bool:
    """Whether a layer is a matrix: linear, or a convolution of single pixels."""
    return isinstance(layer, nn.Linear) or isinstance(layer, nn.Conv2d) and (
        layer.kernel_size, layer.stride, layer.groups) == ((1, 1), (1, 1), 1)


def attention_parts(layer: nn.Module) -> tuple[str, ...]:
    """Names of the projections of an attention layer, () for any other layer.

    Attention is ``nn.MultiheadAttention``, or has a linear layer ``qkv`` (three thirds of equal
    size), ``q`` and ``kv``, or ``q_proj``, ``k_proj`` and ``v_proj``.
    """
    if adaptable_attention(layer):
        return (*PARTS, 'out_proj')
    own = {name: child for name, child in layer.named_children() if pointwise(child)}
    ends = [name for name in ('proj', 'out_proj') if name in own]
    if packed(layer) is not None:
        return (*PARTS, *ends)
    for inputs in (('qkv', ), ('q', 'kv'), ('q_proj', 'k_proj', 'v_proj')):
        if own.keys() >= {*inputs} and not isinstance(layer, READERS):
            return (*inputs, *ends)
    return ()


def packed(layer: nn.Module) -> nn.Linear | None:
    """The matrix of an attention layer that makes q, k and v, if they are equally wide."""
    qkv = getattr(layer, 'qkv', None)
    heads = getattr(layer, 'num_heads', None)
    equal = getattr(layer, 'num_kv_heads', heads) in (None, heads)
    return qkv if isinstance(qkv, nn.Linear) and equal and qkv.out_features % 3 == 0 else None


def targets_by_kind(tower: nn.Module) -> list[str]:
    """Names of the projections of all attention layers, and of the matrices of all MLPs.

    An MLP is a smallest module whose matrices lead from a width to a larger one and back: of
    transformers, with or without a gate (SwiGLU), of ConvNeXt, of FastViT.
    """
    found: list[str] = []

    def walk(layer: nn.Module, name: str) -> bool:
        prefix = f'{name}.' if name else ''
        parts = attention_parts(layer)
        if parts or isinstance(layer, READERS):
            found.extend(f'{prefix}{part}' for part in parts)
            return True
        below = [walk(child, f'{prefix}{label}') for label, child in layer.named_children()]
        if any(below):
            return True
        inner = {label: child for label, child in layer.named_modules() if pointwise(child)}
        shapes = [child.weight.shape for child in inner.values()]
        if len(inner) > 1 and shapes[0][1] == shapes[-1][0] < max(shape[0] for shape in shapes):
            found.extend(f'{prefix}{label}' for label in inner)
            return True
        return False

    walk(tower, '')
    return found


Targets = Annotated[Sequence[str], items(text(100), 1, 50)]


@MODELS.register_module()
class LoRA:
    """Adds LoRA to linear layers, pointwise convolutions and the projections of attention.

    Args:
        rank (int): Rank of the updates. Defaults to 16.
        alpha (float): The update is scaled by ``alpha / rank``. Defaults to 16.
        drop_rate (float): Dropout on the input of the update. Defaults to 0.
        targets (Sequence[str], optional): Name patterns, see ``match_targets``. Every matrix is a
            target under its own name; attention whose matrix is packed has ``q``, ``k`` and ``v``,
            too. Defaults to None: attention and MLPs (:func:`targets_by_kind`).
    """

    def __init__(self, rank: Annotated[int, integer(1, 1024)] = 16,
                 alpha: Annotated[float, number(0, 1e6)] = 16.0, drop_rate: Unsaved[float] = 0.0,
                 targets: Targets | None = None) -> None:
        if rank < 1:
            raise ValueError(f'peft.rank must be at least 1, got {rank}; for none set peft=None.')
        if not 0 <= drop_rate < 1:
            raise ValueError(f'peft.drop_rate must lie in [0, 1), got {drop_rate}.')
        self.targets = targets
        self.options: dict[str, Any] = dict(rank=rank, scale=alpha / rank, drop_rate=drop_rate)

    def inject(self, module: nn.Module) -> list[str]:
        names = self.names(module)
        if self.targets is None:
            chosen = {*targets_by_kind(module)}
            if not chosen:
                raise ValueError(
                    f'LoRA finds neither attention nor MLPs in {type(module).__name__}. Use a '
                    'vision transformer or ConvNeXt, or name layers with peft.targets. There are: '
                    f'{", ".join(_summary(names)) or "none that LoRA can adapt"}.')
            matched = [name for name in names if name in chosen]
        else:
            found = match_targets(names, self.targets)
            matched = [name for name in found if not name.endswith(('.q', '.k', '.v'))
                       or f'{name[:-2]}.qkv' not in found]
        parts: dict[str, list[str]] = {}
        for target in matched:
            owner, _, part = target.rpartition('.')
            layer = module.get_submodule(owner)
            if adaptable_attention(layer):
                # Also for out_proj alone, see READERS.
                parts.setdefault(owner, []).append(part)
                if part in PARTS:
                    continue
            elif part in PARTS and packed(layer) is not None:
                parts.setdefault(f'{owner}.qkv' if owner else 'qkv', []).append(part)
                continue
            matrix: Any = module.get_submodule(target)
            make = LoRALinear if isinstance(matrix, nn.Linear) else LoRAPointwise
            replace_module(module, target, make(matrix, **self.options))
        for owner, chosen_parts in parts.items():
            layer = module.get_submodule(owner)
            inputs = [part for part in chosen_parts if part in PARTS]
            wrap: Any = LoRAPacked if isinstance(layer, nn.Linear) else LoRAAttention
            replace_module(module, owner, wrap(layer, inputs, **self.options))
        for layer in module.modules():
            if getattr(layer, 'qkv_bias_separate', None) is False:
                layer.qkv_bias_separate = True  # type: ignore[assignment]  # EVA reads the matrix
        return matched

    @staticmethod
    def names(module: nn.Module) -> list[str]:
        """Names of the targets there are."""
        names: list[str] = []
        for name, layer in module.named_modules():
            parent = module.get_submodule(name.rpartition('.')[0])
            prefix = f'{name}.' if name else ''
            if adaptable_attention(layer):
                names += [f'{prefix}{part}' for part in (*PARTS, 'out_proj')]
            elif packed(layer) is not None:
                names += [f'{prefix}{part}' for part in PARTS]
            elif pointwise(layer) and not isinstance(parent, READERS):
                names.append(name)
        return names


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
