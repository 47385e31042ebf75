"""Names and their indices."""
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

MAX_NAME = 1000  # characters; the time of CLIP's tokenizer grows with the square of a word


def check_lengths(what: str, names: Iterable[str]) -> None:
    """Refuses names that would keep a tokenizer busy for minutes."""
    longest = max(names, key=len, default='')
    if len(longest) > MAX_NAME:
        raise ValueError(f'{what} must have at most {MAX_NAME:,} characters; {longest[:40]!r}… has '
                         f'{len(longest):,}.')


def sort_names(what: str, names: Sequence[str], labels: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """Sorts names and renumbers labels, indices into them, accordingly."""
    wrong = [name for name in names if not isinstance(name, str) or not name]
    if wrong or isinstance(names, str) or len(set(names)) != len(names) or not len(names):
        double = [] if wrong else [name for name, count in Counter(names).items() if count > 1][:3]
        raise ValueError(f'{what} must be distinct, non-empty names, at least one; got '
                         f'{len(names)} of them' + (f', more than once: {double}' if double else '')
                         + (f', no names: {wrong[:3]}' if wrong else ''))
    check_lengths(what, names)
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = torch.empty(len(names), dtype=torch.long, device='cpu')
    rank[order] = torch.arange(len(names), device='cpu')
    return tuple(names[i] for i in order), rank[labels]


def name_indices(pairs: Sequence[Sequence[str]], attributes: Sequence[str],
                 objects: Sequence[str]) -> Tensor:
    """Pairs of names as pairs of indices, shape (P, 2)."""
    attr_index = {name: i for i, name in enumerate(attributes)}
    obj_index = {name: i for i, name in enumerate(objects)}
    unknown = [pair for pair in pairs if pair[0] not in attr_index or pair[1] not in obj_index]
    if unknown:
        raise ValueError(
            f'{len(unknown)} pairs name an attribute or object that is not given, first '
            f'{tuple(unknown[0])}.')
    return torch.tensor([[attr_index[a], obj_index[o]] for a, o in pairs]).reshape(-1, 2)
