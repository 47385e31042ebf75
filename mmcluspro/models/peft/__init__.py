"""Parameter-efficient tuning: LoRA and bottleneck adapters, injected by name pattern."""
from typing import Annotated

from mmcluspro.fields import Part

from .bottleneck import AdaptedBlock, Adapter, Bottleneck
from .lora import (
    FusedAttention,
    Injected,
    LoRA,
    LoRAAttention,
    LoRALinear,
    LowRank,
    fuse_attention,
    inject,
    injected_modules,
    match_targets,
    merge,
    unmerge,
)

Peft = Annotated[dict | None, Part((LoRA, Bottleneck))]

__all__ = ['Bottleneck', 'LoRA', 'inject', 'merge', 'unmerge']
