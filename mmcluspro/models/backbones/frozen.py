"""A frozen tower with trainable parts: who trains, and who stays in eval mode."""
from mmengine.model import BaseModule
from torch import nn

from ..peft import inject, injected_modules


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

    def train(self, mode: bool = True) -> 'FrozenTower':
        super().train(mode)
        if self.frozen_tower is not None:
            tower: nn.Module = self.get_submodule(self.frozen_tower)
            tower.eval()
            for module in injected_modules(tower):
                module.train(mode)
        return self
