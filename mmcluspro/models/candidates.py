"""Candidates: the pairs that an image is compared with, of a space or listed by name."""
from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor

from mmcluspro.datasets import CompositionSpace
from mmcluspro.datasets.names import check_lengths
from mmcluspro.errors import shown

Pair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The P pairs of A attributes and O objects that a head can choose from.

    The softmax of a path runs over the attributes or objects here.

    Args:
        attributes (tuple[str, ...]): Raw names.
        objects (tuple[str, ...]): Raw names.
        pairs (Tensor): Attribute and object of each pair, shape (P, 2).
        seen (Tensor): Which pairs training had, shape (P,).
        text_attributes (Tensor): Place of each attribute among those of the text side, (A,).
        text_objects (Tensor): Place of each object among those of the text side, (O,).
        text_pairs (Tensor): ``pairs`` in places of the text side, shape (P, 2).
        all_names (bool): Whether the names are the first ones of the text side, in its order.
        all_pairs (bool): Whether the pairs are all A x O ones, in order.
        feasible (Tensor, optional): Which pairs may be the answer, shape (P,). The others only
            take part in the softmax of the composition path, as Eq. 15 has it. Defaults to None:
            all pairs.
    """
    attributes: tuple[str, ...]
    objects: tuple[str, ...]
    pairs: Tensor
    seen: Tensor
    text_attributes: Tensor
    text_objects: Tensor
    text_pairs: Tensor
    all_names: bool
    all_pairs: bool
    feasible: Tensor | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    @classmethod
    def from_space(cls, space: CompositionSpace, seen_only: bool = False) -> Candidates:
        """The pairs of a space, in its order, for a model with the same names.

        Args:
            space (CompositionSpace): The space.
            seen_only (bool): Leave the unseen pairs out. Defaults to False.
        """
        pairs, seen = space.pairs, space.seen
        if seen_only:
            pairs, seen = pairs[seen], seen[seen]
        sizes = len(space.attributes), len(space.objects)
        # On the CPU also where a model is built on the meta device.
        attributes, objects = (torch.arange(size, device='cpu') for size in sizes)
        return cls(space.attributes, space.objects, pairs, seen, attributes, objects, pairs, True,
                   len(pairs) == sizes[0] * sizes[1])

    @classmethod
    def from_names(cls, text: Any, space: CompositionSpace, pairs: Iterable[Pair]) -> Candidates:
        """Pairs of names; names that the model has not learned are added to its text side.

        Args:
            text (TextEncoder): The model's text side.
            space (CompositionSpace): Which pairs training had.
            pairs (Iterable): Attribute and object of each, raw or readable names.
        """
        listed = check_pairs(pairs)
        columns = list(zip(*listed))
        index = [_indices(what, column, text)
                 for what, column in zip(('attribute', 'object'), columns)]
        # Two spellings of one name, such as Faux.Fur and faux fur.
        _refuse_twice([(text.attributes[attr], text.objects[obj]) for attr, obj in zip(*index)])
        found = torch.tensor(index).T.contiguous()
        found = found[(found[:, 0] * len(text.objects) + found[:, 1]).argsort()]
        used = [column.unique(return_inverse=True) for column in found.T]
        names = [tuple(known[i] for i in part[0].tolist())
                 for known, part in zip((text.attributes, text.objects), used)]
        return cls(
            names[0], names[1], torch.stack([part[1] for part in used], dim=1),
            _seen(found, space), used[0][0], used[1][0], found, False,
            len(found) == len(names[0]) * len(names[1]))

    def fits(self, text: Any) -> bool:
        """Whether the places are still those of the names: the text side forgets added ones."""
        return self.all_names or all(
            max(places.tolist(), default=-1) < len(known)
            and all(known[place] == name for place, name in zip(places.tolist(), names))
            for names, places, known in (
                (self.attributes, self.text_attributes, text.attributes),
                (self.objects, self.text_objects, text.objects)))

    def renewed(self, text: Any) -> Candidates:
        """The same pairs in the same order, with their names added to the text side again.

        Names that other calls added are forgotten.
        """
        if self.fits(text):
            return self
        text.restore()
        sides = dict(attributes=self.attributes, objects=self.objects)
        own = {side: set(getattr(text, side)) for side in sides}
        text.extend(**{side: [name for name in names if name not in own[side]]
                       for side, names in sides.items()})
        index = {side: {name: i for i, name in enumerate(getattr(text, side))} for side in sides}
        places = [torch.tensor([index[side][name] for name in names], device=self.pairs.device)
                  for side, names in sides.items()]
        text_pairs = torch.stack(
            [place[column] for place, column in zip(places, self.pairs.T)], dim=1)
        return replace(self, text_attributes=places[0], text_objects=places[1],
                       text_pairs=text_pairs)

    def to(self, device: torch.device | str) -> Candidates:
        """The same on a device; itself where it is there already."""
        if self.pairs.device == torch.device(device):
            return self
        moved: dict[str, Any] = {
            part.name: value.to(device) for part in fields(self)
            if isinstance(value := getattr(self, part.name), Tensor)}
        return replace(self, **moved)


def cross(attributes: Sequence[str] | None, objects: Sequence[str] | None,
          space: CompositionSpace) -> list[Pair]:
    """All pairs of the given names; a side that is not given has the model's own."""
    for what, names in (('attributes', attributes), ('objects', objects)):
        if names is not None and (isinstance(names, str) or not len(names)):
            raise ValueError(f'{what} must be a list of at least one name, got {names!r}.')
    return [(attr, obj) for attr in attributes or space.attributes
            for obj in objects or space.objects]


def check_pairs(pairs: Iterable[Pair]) -> list[Pair]:
    """Refuses an empty list, entries that are not two names, and pairs that are given twice."""
    listed = [tuple(pair) if not isinstance(pair, str) else pair for pair in pairs]
    if not listed:
        raise ValueError("pairs is empty; give at least one, such as [('wet', 'cat')].")
    cleaned: list[Pair] = []
    for place, pair in enumerate(listed):
        if isinstance(pair, str) or len(pair) != 2 or not all(
                isinstance(name, str) and name.strip() for name in pair):
            raise ValueError(f"pairs[{place}] must be two names, such as ('wet', 'cat'), "
                             f'got {shown(pair)}.')
        cleaned.append((pair[0].strip(), pair[1].strip()))
    check_lengths('names', (name for pair in cleaned for name in pair))
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
    close = {name: get_close_matches(name, known, n=1) for name in new[:10]}
    listed = ', '.join(shown(name) + (f' (did you mean {shown(close[name][0])}?)'
                                      if close[name] else '') for name in new[:10])
    more = f' and {len(new) - 10} more' if len(new) > 10 else ''
    warnings.warn(f'Not in the training data: {what} {listed}{more}. Only the name is used.',
                  stacklevel=2)


def _seen(pairs: Tensor, space: CompositionSpace) -> Tensor:
    """Marks pairs (as indices of the text side) that occur in training, shape (P,)."""
    own = torch.tensor([len(space.attributes), len(space.objects)])
    inside = (pairs < own).all(dim=1)
    seen = torch.zeros(len(pairs), dtype=torch.bool)
    rows = space.lookup(*pairs[inside].T)
    seen[inside] = space.seen[rows] & (rows >= 0)
    return seen
