"""What the blocks inside a vision transformer return.

A frozen tower with trainable parts: who trains, and who stays in eval mode.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from mmengine.model import BaseModule
from torch import Tensor, nn

from mmcluspro.fields import integer, items
from mmcluspro.models.peft import inject, injected_modules

OutLayers = Annotated[Sequence[int], items(integer(-256, 256), 0, 256)]


def layer_numbers(layers: Sequence[int], blocks: nn.Module | None, name: str) -> tuple[int, ...]:
    """The numbers of ``backbone.out_layers``, counted from 0 and in order.

    Args:
        layers (Sequence[int]): Numbers of blocks, negative ones from the end.
        blocks (nn.ModuleList | None): The blocks; None if the tower has none.
        name (str): How to call the tower in messages.
    """
    if not layers:
        return ()
    if blocks is None:
        raise ValueError(f'backbone.out_layers needs a vision transformer; {name} is none. Use '
                         'a ViT such as ViT-B-32, ViT-L-14 or DINOv2.')
    size = len(blocks)  # type: ignore[arg-type]
    outside = [number for number in layers if not -size <= number < size]
    if outside:
        raise ValueError(f'backbone.out_layers must lie in [{-size}, {size}) for the {size} '
                         f'blocks of {name}, got {outside[0]}.')
    return tuple(sorted({number % size for number in layers}))


@contextmanager
def listening(blocks: Any, numbers: Sequence[int]) -> Iterator[dict[str, Tensor]]:
    """Collects ``layer_<n>``, what block n returns, while the tower runs inside."""
    found: dict[str, Tensor] = {}

    def listen(number: int) -> Any:
        def keep(_: Any, __: Any, output: Tensor) -> None:
            found[f'layer_{number}'] = output
        return blocks[number].register_forward_hook(keep)

    handles = [listen(number) for number in numbers]
    try:
        yield found
    finally:  # not in backward, where checkpointed blocks run again
        for handle in handles:
            handle.remove()


class FrozenTower(BaseModule):
    """Base of backbones around a tower that may be frozen and may get PEFT modules.

    A frozen tower stays in eval mode under ``train()`` (no dropout, BatchNorm statistics fixed),
    while what is injected into it follows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.frozen_tower: str | None = None

    def adapt(self, name: str, frozen: bool, peft: dict | None) -> list[str]:
        """Freezes the child ``name`` or not, then injects ``peft`` into it.

        Returns:
            list[str]: Names of the targets that were changed.
        """
        tower = self.get_submodule(name)
        tower.requires_grad_(not frozen)
        self.frozen_tower = name if frozen else None
        injected = inject(tower, peft) if peft else []
        self.train(self.training)
        return injected

    def train(self, mode: bool = True) -> FrozenTower:
        super().train(mode)
        if self.frozen_tower is not None:
            tower: nn.Module = self.get_submodule(self.frozen_tower)
            tower.eval()
            for module in injected_modules(tower):
                module.train(mode)
        return self
