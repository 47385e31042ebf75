"""The candidates of a world, with the infeasible pairs of the open world left out."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models import Candidates

from .feasibility import feasible_space, head_feasibility

WORLDS = ('closed', 'open')


def phase_worlds(space: CompositionSpace, worlds: Iterable[str]) -> dict[str, Candidates]:
    """All pairs of the worlds that an evaluation asks for; the closed world always comes first.

    Args:
        space (CompositionSpace): The pairs of the phase.
        worlds (Iterable[str]): Of 'closed' and 'open'.
    """
    found = {'closed': Candidates.from_space(space)}
    if 'open' in worlds:
        found['open'] = Candidates.from_space(space.open_world())
    return found


def world_candidates(head: Any, space: CompositionSpace, world: str,
                     threshold: float | None = None) -> Candidates:
    """The pairs of a world.

    Args:
        head (CompositionHead): Whose text side says which pairs are feasible.
        space (CompositionSpace): The pairs of the closed world.
        world (str): 'closed': these pairs; 'open': all attributes x all objects that are seen or
            feasible (Eq. 15).
        threshold (float, optional): Open world: unseen pairs with a higher feasibility stay.
            Defaults to None: all do.
    """
    if world not in WORLDS:
        raise ValueError(f"world must be 'closed' or 'open', got {world!r}.")
    if world == 'open':
        space = space.open_world()
        if threshold is not None:
            space = feasible_space(space, head_feasibility(head, space), threshold)
    return Candidates.from_space(space)
