"""Parallel bottleneck adapters, what the released code calls LoRA (Troika's and CAILA's way).

Houlsby et al., "Parameter-Efficient Transfer Learning for NLP".
"""
import math
from typing import Annotated, Any

import torch
from timm.models.eva import EvaBlock
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from mmcluspro.fields import Unsaved, Width, number
from mmcluspro.registry import MODELS

from .lora import (
    FusedAttention,
    Injected,
    LoRA,
    Targets,
    adaptable_attention,
    match_targets,
    replace_module,
    targets_by_kind,
)

TIMM_BLOCKS = (Block, EvaBlock)


class Adapter(Injected):
    """x → scale · up(dropout(relu(down(x)))), zero at the start.

    Args:
        dim (int): Width of x.
        width (int): Width of the bottleneck.
        scale (float): Factor of the output.
        dropout (float): Dropout rate in the bottleneck.
        like (Tensor): Gives device and dtype.
    """

    def __init__(self, dim: int, width: int, scale: float, dropout: float, like: Tensor) -> None:
        super().__init__()
        factory: dict[str, Any] = dict(device=like.device, dtype=like.dtype)
        self.down = nn.Linear(dim, width, **factory)
        self.up = nn.Linear(width, dim, **factory)
        self.act = nn.ReLU()
        self.drop = nn.Dropout(dropout)
        self.scale = scale
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., dim) → (..., dim)."""
        return self.up(self.drop(self.act(self.down(x)))) * self.scale


class AdaptedBlock(nn.Module):
    """A block of open_clip with adapters parallel to attention and MLP, under the same names.

    Each adapter reads the input of its residual branch, before the norm, and adds to the output:
    x + attention(norm(x)) + adapter(x), then the same with the MLP.

    Args:
        block (nn.Module): Its layers are taken over.
    """

    FIRST = 'ln_1'  # the norm that tells width, device and dtype
    ln_1: Any
    attn: Any
    ln_attn: Any
    ls_1: Any
    ln_2: Any
    mlp: Any
    ls_2: Any

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        for name, parameter in block.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, layer in block.named_children():
            self.add_module(name, FusedAttention(layer)  # type: ignore[arg-type]
                            if adaptable_attention(layer) else layer)
        self.adapters = nn.ModuleDict()

    def forward(self, x: Tensor, k_x: None = None, v_x: None = None,
                attn_mask: Tensor | None = None) -> Tensor:
        """x (B, L, D) → (B, L, D); ``k_x`` and ``v_x`` are open_clip's, and not used."""
        mask = attn_mask.to(x.dtype) if attn_mask is not None else None
        y = self.ln_1(x)
        if isinstance(self.attn, (nn.MultiheadAttention, FusedAttention)):
            y = self.attn(y, y, y, need_weights=False, attn_mask=mask)[0]
        else:
            y = self.ln_attn(self.attn(y, attn_mask=mask))
        x = self._add('attn', x, self.ls_1(y))
        return self._add('mlp', x, self.ls_2(self.mlp(self.ln_2(x))))

    def _add(self, branch: str, x: Tensor, y: Tensor) -> Tensor:
        return x + y + self.adapters[branch](x) if branch in self.adapters else x + y

    def get_weight_dtype(self) -> torch.dtype:
        """open_clip asks for it."""
        return self.mlp.c_fc.weight.dtype


class AdaptedTimmBlock(AdaptedBlock):
    """The same with a block of timm's vision transformers or of EVA."""

    FIRST = 'norm1'
    norm1: Any
    norm2: Any

    def forward(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        """x (B, L, D) → (B, L, D); the rest goes to the attention (rotations, masks)."""
        y = self._scaled(self.attn(self.norm1(x), *args, **options), '1')
        x = self._add('attn', x, y)
        return self._add('mlp', x, self._scaled(self.mlp(self.norm2(x)), '2'))

    def _scaled(self, y: Tensor, branch: str) -> Tensor:
        """Layer scale, a layer in one of the two and a vector in the other, and dropped paths."""
        gamma = getattr(self, f'gamma_{branch}', None)
        y = y if gamma is None else gamma * y
        return getattr(self, f'drop_path{branch}')(getattr(self, f'ls{branch}', nn.Identity())(y))


@MODELS.register_module()
class Bottleneck:
    """Adds adapters parallel to attention and MLP of the transformer blocks of open_clip and timm.

    Args:
        width (int): Width of the bottleneck. Defaults to 64.
        scale (float): Factor of the output. Defaults to 0.1.
        dropout (float): Dropout rate in the bottleneck. Defaults to 0.1.
        targets (Sequence[str]): Name patterns of branches, see ``match_targets``. Defaults to
            ``('attn', 'mlp')``, both branches of every block.
    """

    def __init__(self, width: Width = 64, scale: Annotated[float, number(-1e6, 1e6)] = 0.1,
                 dropout: Unsaved[float] = 0.1, targets: Targets = ('attn', 'mlp')) -> None:
        if width < 1:
            raise ValueError(
                f'peft.width must be at least 1, got {width}; for none set peft=None.')
        if not 0 <= dropout < 1:
            raise ValueError(f'peft.dropout must lie in [0, 1), got {dropout}.')
        self.targets = targets
        self.options: dict[str, Any] = dict(width=width, scale=scale, dropout=dropout)

    def inject(self, module: nn.Module) -> list[str]:
        blocks = {name: block for name, block in module.named_modules() if _is_block(block)}
        if not blocks:
            raise ValueError(f"peft.type='mmcluspro.Bottleneck' needs transformer blocks of "
                             f'open_clip or timm, and {type(module).__name__} has none. Use '
                             f'{_instead(module)}.')
        matched = match_targets(
            [f'{name}.{branch}' for name in blocks for branch in ('attn', 'mlp')], self.targets)
        adapted: dict[str, AdaptedBlock] = {}
        for target in matched:
            name, _, branch = target.rpartition('.')
            wrap = AdaptedTimmBlock if type(blocks[name]) in TIMM_BLOCKS else AdaptedBlock
            block = adapted.setdefault(name, wrap(blocks[name]))
            weight = getattr(block, block.FIRST).weight
            block.adapters[branch] = Adapter(len(weight), like=weight, **self.options)
        for name, block in adapted.items():
            replace_module(module, name, block)
        return matched


def _instead(tower: nn.Module) -> str:
    """The field ``peft`` that fits a tower without blocks."""
    if targets_by_kind(tower):
        return "peft=dict(type='mmcluspro.LoRA')"
    ends = sorted({name.rpartition('.')[2] for name in LoRA.names(tower)})
    named = [end for end in ends if not end.isdigit()]  # '0' of a downsampling says nothing
    return f"peft=dict(type='mmcluspro.LoRA', targets={named})" if named else 'peft=None'


def _is_block(layer: nn.Module) -> bool:
    if type(layer) in TIMM_BLOCKS:
        return True
    names = {name for name, _ in layer.named_children()}
    return {'ln_1', 'attn', 'ls_1', 'ln_2', 'mlp', 'ls_2'} <= names and 'ln_1_kv' not in names
