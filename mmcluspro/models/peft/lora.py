"""LoRA by name pattern, how the paper tunes the image encoder (appendix, "Visual Feature
Extraction"), and merging it away for inference."""
from collections.abc import Sequence
from typing import Any

from open_clip.modified_resnet import AttentionPool2d
from torch import nn

from mmcluspro.registry import MODELS

from .injection import match_targets, replace_module
from .lora_layers import PARTS, LoRAAttention, LoRALayer, LoRALinear, adaptable_attention

TARGETS = ('attn.q', 'attn.k', 'attn.v', 'attn.out_proj', 'mlp.c_fc', 'mlp.c_proj')
# These read the matrices of their linear layers and never call them, so that updates of one would
# be silently ignored.
READERS = (nn.MultiheadAttention, AttentionPool2d)


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

    def __init__(self, rank: int = 16, alpha: float = 16.0, drop_rate: float = 0.0,
                 targets: Sequence[str] = TARGETS) -> None:
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
