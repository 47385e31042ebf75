"""Adapters of concepts inside the blocks of a tower, and their mixture (CAILA)."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from open_clip.transformer import QuickGELU, ResidualAttentionBlock
from torch import Tensor, nn

from mmcluspro.models.peft import Injected

MIXTURE = 'mixture'


class ConceptAdapter(nn.Module):
    """z = gelu(W_d h), u = W_u z: the bottleneck of one concept, zero at the start.

    Args:
        dim (int): Width of h.
        width (int): Width of z.
        like (Tensor): Gives device and dtype.
    """

    def __init__(self, dim: int, width: int, like: Tensor) -> None:
        super().__init__()
        factory: dict[str, Any] = dict(device=like.device, dtype=like.dtype)
        self.down, self.up = nn.Linear(dim, width, **factory), nn.Linear(width, dim, **factory)
        self.act = QuickGELU()
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """h (..., D) → z (..., width) and u (..., D)."""
        z = self.act(self.down(h))
        return z, self.up(z)


class ConceptAdapters(Injected):
    """h + u of the concept that runs, after a branch of a block; h alone when none does.

    In the mixture, the hidden states z of all concepts are averaged before the projection of the
    mixture's own adapter, and so are the outputs u.

    Args:
        scale (nn.Module): What stood there: open_clip's layer scale.
        dim (int): Width of h.
        width (int): Width of the bottleneck.
        concepts (Sequence[str]): Names of the concepts, :data:`MIXTURE` last if there is one.
        like (Tensor): Gives device and dtype.
    """

    def __init__(self, scale: nn.Module, dim: int, width: int, concepts: Sequence[str],
                 like: Tensor) -> None:
        super().__init__()
        self.scale = scale
        self.adapters = nn.ModuleDict({
            concept: ConceptAdapter(dim, width, like) for concept in concepts})
        self.running: str | None = None

    def forward(self, h: Tensor) -> Tensor:
        """h (..., D) → (..., D)."""
        h = self.scale(h)
        if self.running is None:
            return h
        if self.running != MIXTURE:
            return h + self.adapters[self.running](h)[1]
        own: Any = self.adapters[MIXTURE]
        others = [adapter(h) for name, adapter in self.adapters.items() if name != MIXTURE]
        z = torch.stack([own.act(own.down(h)), *(z for z, _ in others)]).mean(dim=0)
        return h + torch.stack([own.up(z), *(u for _, u in others)]).mean(dim=0)


def inject_concepts(blocks: Sequence[Any], concepts: Sequence[str], reduction: int,
                    mixture_from: int | None = None) -> list[ConceptAdapters]:
    """Puts adapters after attention and MLP of open_clip's blocks, in the place of layer scale.

    The blocks stay of their own class, so that the prefix tree of prompts still applies.

    Args:
        blocks (Sequence): Of a transformer.
        concepts (Sequence[str]): One adapter per branch each.
        reduction (int): The bottleneck is this many times narrower than the block.
        mixture_from (int, optional): First block with a mixture. Defaults to None, no mixture.
    """
    found = []
    for number, block in enumerate(blocks):
        if type(block) is not ResidualAttentionBlock:
            raise ValueError('CAILA needs a tower of the standard blocks of CLIP, such as that of '
                             f'ViT-B-32 or ViT-L-14, got {type(block).__name__}.')
        weight = block.ln_1.weight
        names = [*concepts]
        if mixture_from is not None and number >= mixture_from:
            names.append(MIXTURE)
        for name in ('ls_1', 'ls_2'):
            adapters = ConceptAdapters(getattr(block, name), len(weight), len(weight) // reduction,
                                       names, weight)
            setattr(block, name, adapters)
            found.append(adapters)
    return found


@contextmanager
def running(adapters: Sequence[ConceptAdapters], concept: str) -> Iterator[None]:
    """Inside the block, the adapters of one concept are on."""
    for part in adapters:
        part.running = concept
    try:
        yield
    finally:
        for part in adapters:
            part.running = None


def learn_norms(tower: nn.Module) -> None:
    """Makes the layer norms of a frozen tower trainable."""
    for module in tower.modules():
        if isinstance(module, nn.LayerNorm):
            module.requires_grad_(True)
