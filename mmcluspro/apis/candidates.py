"""The pairs that an image is compared with: known ones, listed ones, new words."""
from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmcluspro.datasets import CompositionSpace
from mmcluspro.engine.hooks.composition_hook import text_feasibility

Pair = tuple[str, str]


class Candidates(NamedTuple):
    """P pairs, sorted, of A attributes and O objects that occur in them.

    The softmax of a path runs over the primitives that occur here.
    """

    attributes: tuple[str, ...]
    objects: tuple[str, ...]
    pairs: Tensor  # (P, 2), into the two above
    text_pairs: Tensor  # (P, 2), into the names of the text side
    seen: Tensor  # (P,)
    text_attributes: Tensor  # (A,), into the names of the text side
    text_objects: Tensor  # (O,)

    def to(self, device: torch.device) -> Candidates:
        """The same on a device."""
        moved: dict[str, Any] = {name: part.to(device) for name, part in self._asdict().items()
                                 if isinstance(part, Tensor)}
        return self._replace(**moved)


def known_candidates(head: Any, space: CompositionSpace, world: str,
                     threshold: float | None) -> Candidates:
    """The pairs of a world.

    Args:
        head (Any): The model's head.
        space (CompositionSpace): Pairs of all phases.
        world (str): 'closed': these pairs; 'open': all attributes x all objects that are seen or
            feasible (Eq. 15).
        threshold (float | None): Feasibility from which on an unseen pair counts; None: all do.
    """
    if world == 'open':
        space = space.open_world()
        if threshold is not None:
            rho = text_feasibility(head.text, space)[space.pairs[:, 0], space.pairs[:, 1]]
            keep = space.seen | (rho > threshold)
            space = CompositionSpace(
                space.attributes, space.objects, space.pairs[keep], space.seen[keep])
    return _build(head.text, space.pairs, space)


def listed_candidates(head: Any, space: CompositionSpace, pairs: Iterable[Pair]) -> Candidates:
    """Pairs of names; names that the model has not learned are added to its text side."""
    listed = check_pairs(pairs)
    columns = list(zip(*listed))
    text = head.text
    index = [_indices(what, column, text) for what, column in zip(('attribute', 'object'), columns)]
    # Two spellings of one name, such as Faux.Fur and faux fur.
    _refuse_twice([(text.attributes[attr], text.objects[obj]) for attr, obj in zip(*index)])
    return _build(text, torch.tensor(index).T.contiguous(), space)


def cross(attributes: Sequence[str] | None, objects: Sequence[str] | None,
          space: CompositionSpace) -> list[Pair]:
    """All pairs of the given names; a side that is not given has the model's own."""
    for what, names in (('attributes', attributes), ('objects', objects)):
        if names is not None and (isinstance(names, str) or not len(names)):
            raise ValueError(f'{what} must be a list of at least one name, got {names!r}.')
    return [(attr, obj) for attr in attributes or space.attributes
            for obj in objects or space.objects]


def check_pairs(pairs: Iterable[Pair]) -> list[Pair]:
    """Refuses an empty list, what is no pair of names, and pairs that stand there twice."""
    listed = [tuple(pair) if not isinstance(pair, str) else pair for pair in pairs]
    if not listed:
        raise ValueError("pairs is empty; give at least one, such as [('wet', 'cat')].")
    cleaned: list[Pair] = []
    for place, pair in enumerate(listed):
        if isinstance(pair, str) or len(pair) != 2 or not all(
                isinstance(name, str) and name.strip() for name in pair):
            raise ValueError(f"pairs[{place}] must be two names, such as ('wet', 'cat'), "
                             f'got {pair!r}.')
        cleaned.append((pair[0].strip(), pair[1].strip()))
    _refuse_twice(cleaned)
    return cleaned


def _refuse_twice(pairs: Sequence[Pair]) -> None:
    twice = [pair for pair, count in Counter(pairs).items() if count > 1]
    if twice:
        raise ValueError(f'{len(twice)} of the pairs are given more than once: {twice[:5]}. Leave '
                         'the repetitions out.')


def _indices(what: str, column: Sequence[str], text: Any) -> list[int]:
    """Places of names among those of the text side, after adding the new ones."""
    names: tuple[str, ...] = text.attributes if what == 'attribute' else text.objects
    spoken = {text.readable(name): name for name in names}
    place = {name: i for i, name in enumerate(names)}
    meant = {name: name if name in place else spoken.get(text.readable(name), name)
             for name in dict.fromkeys(column)}
    new = [name for name in dict.fromkeys(meant.values()) if name not in place]
    if new:
        _announce(what, new, names)
        text.extend(**{f'{what}s': new})
        place.update({name: len(names) + i for i, name in enumerate(new)})
    return [place[meant[name]] for name in column]


def _announce(what: str, new: Sequence[str], known: Sequence[str]) -> None:
    close = {name: get_close_matches(name, known, n=1) for name in new}
    shown = ', '.join(repr(name) + (f' (did you mean {close[name][0]!r}?)' if close[name] else '')
                      for name in new[:10])
    more = f' and {len(new) - 10} more' if len(new) > 10 else ''
    warnings.warn(f'Training had no {what} {shown}{more}: known to the text tower only, by the '
                  'tokens of the name.', stacklevel=2)


def _build(text: Any, pairs: Tensor, space: CompositionSpace) -> Candidates:
    """Sorted, which the fusion of all pairs relies on."""
    key = pairs[:, 0] * len(text.objects) + pairs[:, 1]
    pairs = pairs[key.argsort()]
    used = [column.unique(return_inverse=True) for column in pairs.T]
    own = torch.tensor([len(space.attributes), len(space.objects)])
    inside = (pairs < own).all(dim=1)
    seen = torch.zeros(len(pairs), dtype=torch.bool)
    rows = space.lookup(*pairs[inside].T)
    seen[inside] = space.seen[rows] & (rows >= 0)
    return Candidates(
        tuple(text.attributes[i] for i in used[0][0].tolist()),
        tuple(text.objects[i] for i in used[1][0].tolist()),
        torch.stack([part[1] for part in used], dim=1), pairs, seen, used[0][0], used[1][0])
