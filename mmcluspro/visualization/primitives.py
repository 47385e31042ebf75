"""Resolves the attributes and objects that a user names, and chooses the most frequent ones."""
from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import torch
from torch import Tensor

from mmcluspro.datasets import CompositionSpace

BRANCHES = {'attr': 'attribute', 'obj': 'object'}


def names_of(space: CompositionSpace, branch: str) -> tuple[str, ...]:
    """The attributes of a space for 'attr', its objects for 'obj'."""
    return space.attributes if branch == 'attr' else space.objects


def find_primitive(space: CompositionSpace, name: str) -> list[tuple[str, int]]:
    """Branch and index of a name; both branches if it is an attribute and an object.

    Args:
        space (CompositionSpace): Where to look.
        name (str): 'red', or 'attr:orange' and 'obj:orange' for one of the two.
    """
    prefix, _, rest = name.partition(':')
    branches = [prefix] if prefix in BRANCHES and rest else list(BRANCHES)
    wanted = rest if len(branches) == 1 else name
    found = [(branch, names_of(space, branch).index(wanted)) for branch in branches
             if wanted in names_of(space, branch)]
    if not found:
        known = [known for branch in branches for known in names_of(space, branch)]
        close = get_close_matches(wanted, known, n=3)
        words = ' or '.join(BRANCHES[branch] for branch in branches)
        raise ValueError(
            f'{wanted!r} is not an {words} of the checkpoint.'
            + (f' Did you mean {" or ".join(close)}?' if close else f' It knows, for example, '
               f'{", ".join(known[:5])}.'))
    return found


def most_frequent(labels: Tensor, num_classes: int, count: int) -> list[int]:
    """The ``count`` classes with most labels, in order of their index; absent ones never.

    Args:
        labels (Tensor): Shape (N,).
        num_classes (int): C.
        count (int): How many at most.
    """
    if count < 1:
        raise ValueError(f'The number of primitives must be at least 1, got {count}.')
    sizes = torch.bincount(labels, minlength=num_classes)
    order = sizes.argsort(descending=True, stable=True)[:count]
    return sorted(order[sizes[order] > 0].tolist())


def split_by_branch(space: CompositionSpace, names: Sequence[str]) -> dict[str, list[int]]:
    """Indices of the asked names by branch, in the order given, each once."""
    chosen: dict[str, list[int]] = {branch: [] for branch in BRANCHES}
    for name in names:
        for branch, index in find_primitive(space, name):
            if index not in chosen[branch]:
                chosen[branch].append(index)
    return chosen
