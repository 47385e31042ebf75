"""From the probabilities of a batch to the best pairs, attributes and objects of each image."""
from collections.abc import Iterator

from torch import Tensor

from .candidates import Candidates
from .result import NameScore, PairScore

Row = tuple[tuple[PairScore, ...], tuple[NameScore, ...], tuple[NameScore, ...]]


def marginal(chance: Tensor, candidates: Candidates) -> tuple[Tensor, Tensor]:
    """Probabilities of the primitives, (B, A) and (B, O), as sums over their pairs (B, P)."""
    sizes = len(candidates.attributes), len(candidates.objects)
    attr, obj = (
        chance.new_zeros(len(chance), size).index_add_(1, candidates.pairs[:, side], chance)
        for side, size in enumerate(sizes))
    return attr, obj


def rank(chance: Tensor, attr: Tensor, obj: Tensor, candidates: Candidates,
         top_k: int) -> Iterator[Row]:
    """Yields the best of each image.

    Args:
        chance (Tensor): Probabilities of the pairs, shape (B, P).
        attr (Tensor): Probabilities of the attributes, shape (B, A).
        obj (Tensor): Probabilities of the objects, shape (B, O).
        candidates (Candidates): On the same device.
        top_k (int): How many of each.

    Yields:
        tuple: Pairs, attributes and objects, best first.
    """
    best = chance.topk(min(top_k, chance.shape[1]))
    places = candidates.pairs[best.indices]  # (B, k, 2)
    columns = (best.values, attr.gather(1, places[..., 0]), obj.gather(1, places[..., 1]),
               candidates.seen[best.indices])
    names = candidates.attributes, candidates.objects
    singles = [_best_names(table, name, top_k) for table, name in zip((attr, obj), names)]
    for row, parts in enumerate(zip(places.tolist(), *(part.tolist() for part in columns))):
        pairs = tuple(PairScore(names[0][pair[0]], names[1][pair[1]], *values)
                      for pair, *values in zip(*parts))
        yield pairs, singles[0][row], singles[1][row]


def _best_names(table: Tensor, names: tuple[str, ...], top_k: int) -> list[tuple[NameScore, ...]]:
    best = table.topk(min(top_k, table.shape[1]))
    return [tuple(NameScore(names[i], score) for i, score in zip(*row))
            for row in zip(best.indices.tolist(), best.values.tolist())]
