"""Parameter-efficient tuning: LoRA and bottleneck adapters, injected by name pattern."""
from .bottleneck import AdaptedBlock, Adapter, Bottleneck
from .injection import Injected, inject, injected_modules, match_targets
from .lora import LoRA, merge, unmerge
from .lora_layers import LoRAAttention, LoRALinear, LowRank

__all__ = [
    'Adapter', 'AdaptedBlock', 'Bottleneck', 'Injected', 'LoRA', 'LoRAAttention', 'LoRALinear',
    'LowRank', 'inject', 'injected_modules', 'match_targets', 'merge', 'unmerge'
]
