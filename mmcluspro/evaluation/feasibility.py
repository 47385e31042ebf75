"""Open world: how feasible an unseen pair is (Eq. 14-15) and which pairs a threshold keeps."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mmcluspro.datasets import CompositionSpace
from mmcluspro.models import Candidates
from mmcluspro.models.pair_feasibility import feasibility_scores

if TYPE_CHECKING:
    from .calibration import Chosen


@torch.no_grad()
def head_feasibility(head: Any, space: CompositionSpace) -> Tensor:
    """Feasibility of all pairs from the names' embeddings that ``head.feasibility`` asks for.

    Args:
        head (Any): Its text side is read as it is now.
        space (CompositionSpace): The names and the seen pairs.

    Returns:
        Tensor: On the CPU, shape (A, O).
    """
    text = head.text
    if head.feasibility != 'trained':
        attr, obj = text.pretrained(space.attributes), text.pretrained(space.objects)
        if head.feasibility == 'relatedness':
            return normalize(attr.cpu().float(), dim=1) @ normalize(obj.cpu().float(), dim=1).T
    else:
        training = text.training
        if training:
            text.eval()  # no dropout
        attr = text.encode_attributes()[:len(space.attributes)]
        obj = text.encode_objects()[:len(space.objects)]
        if training:
            text.train()
    return feasibility_scores(attr.cpu(), obj.cpu(), space.train_pairs)


def feasible_pairs(space: CompositionSpace, rho: Tensor, threshold: float) -> Tensor:
    """Which pairs are seen or have a feasibility above the threshold (Eq. 15), shape (P,).

    Args:
        space (CompositionSpace): For example an open world.
        rho (Tensor): Feasibility of all pairs, shape (A, O).
        threshold (float): T.
    """
    return space.seen | (rho[space.pairs[:, 0], space.pairs[:, 1]].double() > threshold)


def threshold_candidates(rho: Tensor, seen: Tensor, num: int = 50) -> Tensor:
    """Evenly spaced thresholds from the least to the most feasible unseen pair.

    Args:
        rho (Tensor): Feasibility of each pair, shape (P,).
        seen (Tensor): Which pairs are seen, shape (P,).
        num (int): Number of thresholds. Defaults to 50.

    Returns:
        Tensor: Rising thresholds, float64, shape (num,); only -1 if every pair is seen.
    """
    unseen = rho[~seen].double()
    if len(unseen) == 0:
        return torch.full((1, ), -1.0, dtype=torch.float64)
    return torch.linspace(float(unseen.min()), float(unseen.max()), num, dtype=torch.float64)


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


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What an evaluation asks a head for, and how its scores are read. It does not change.

    ``EvaluationHook`` makes one before each validation and test. The worlds go to the model with
    every batch (``data_batch['worlds']``), all of it to the metrics
    (``dataset_meta['evaluation']``).

    Args:
        worlds (Mapping[str, Candidates]): What the head scores: 'closed' first, 'open' if a metric
            asks for it, 'known' for ``PredictionMetric``. Defaults to nothing, for a model of
            another project.
        link (str): Of the head: 'log', or 'identity' for scores that are logits. Defaults to
            'log'.
        known (CompositionSpace, optional): The pairs of 'known'. Defaults to None.
        rho (Tensor, optional): Feasibility of all pairs, shape (A, O). Defaults to None.
        chosen (Mapping[str, Chosen], optional): What validation chose, by world. Defaults to
            nothing; None lets the metrics choose on the samples of this evaluation.
        delivered (Chosen, optional): With what ``PredictionMetric`` answers. Defaults to None:
            ``chosen['closed']``.
    """
    worlds: Mapping[str, Candidates] = field(default_factory=dict)
    link: str = 'log'
    known: CompositionSpace | None = None
    rho: Tensor | None = None
    chosen: Mapping[str, Chosen] | None = field(default_factory=dict)
    delivered: Chosen | None = None

    @classmethod
    def of(cls, head: Any, space: CompositionSpace, worlds: Iterable[str] = (),
           feasibility: bool = False, known: bool = False,
           chosen: Mapping[str, Chosen] | None = None) -> Evaluation:
        """Of a head, with the weights that it has now.

        Args:
            head (CompositionHead): The head.
            space (CompositionSpace): The pairs of the phase.
            worlds (Iterable[str]): Of 'closed' and 'open'; the closed one always takes part.
            feasibility (bool): Whether to compute it. Defaults to False.
            known (bool): Whether to score the pairs of all phases, too. Defaults to False.
            chosen (Mapping[str, Chosen], optional): As in the class.
        """
        own = head.space.attributes, head.space.objects
        if (space.attributes, space.objects) != own:
            raise ValueError(
                f'The evaluation has {len(space.attributes)} attributes and {len(space.objects)} '
                f'objects that are not those of the model ({len(own[0])} and {len(own[1])}). '
                'model.space and the datasets of the config must name the same data.')
        scored = phase_worlds(space, worlds)
        pairs = None
        if known:
            scored['known'] = head.known_candidates
            pairs = CompositionSpace(*own, scored['known'].pairs.cpu(),
                                     scored['known'].seen.cpu())
        return cls({world: each.to(head.device) for world, each in scored.items()}, head.link,
                   pairs, head_feasibility(head, space) if feasibility else None, chosen)


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
