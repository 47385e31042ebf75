"""The candidates of a world, with the infeasible pairs of the open world marked."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models import Candidates

from .feasibility import feasible_pairs, head_feasibility

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
        world (str): 'closed': these pairs; 'open': all attributes x all objects, of which the
            seen and the feasible ones may be the answer (Eq. 15).
        threshold (float, optional): Open world: unseen pairs with a higher feasibility are
            feasible. Defaults to None: all are.
    """
    if world not in WORLDS:
        raise ValueError(f"world must be 'closed' or 'open', got {world!r}.")
    if world == 'closed':
        return Candidates.from_space(space)
    space = space.open_world()
    candidates = Candidates.from_space(space)
    if threshold is None:
        return candidates
    rho = head_feasibility(head, space)
    return replace(candidates, feasible=feasible_pairs(space, rho, threshold))
