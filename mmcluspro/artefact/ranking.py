"""Ranks the pairs, attributes and objects of each image by their scores."""
from collections.abc import Iterator

import torch
from mmpretrain.structures import DataSample
from torch import Tensor

from mmcluspro.evaluation import Calibration, probabilities
from mmcluspro.models import Candidates
from mmcluspro.models.structures import Scores

from .result import NameScore, PairScore, Prediction

Row = tuple[tuple[PairScore, ...], tuple[NameScore, ...], tuple[NameScore, ...]]


def rank(scores: Scores, candidates: Candidates, calibration: Calibration, link: str,
         top_k: int) -> Iterator[Row]:
    """Yields the best of each image.

    Args:
        scores (Scores): Of a head; without attributes and objects, their probabilities are sums
            over the pairs.
        candidates (Candidates): On the same device.
        calibration (Calibration): Turns log scores into probabilities.
        link (str): Of the head.
        top_k (int): How many of each to return.

    Yields:
        tuple: Pairs, attributes and objects, best first.
    """
    feasible = candidates.feasible
    chance = probabilities(scores.pair, candidates.seen, calibration, link, feasible)
    attr, obj = (
        _marginal(chance, candidates.pairs[:, side], len(names)) if given is None else given
        for side, (given, names) in enumerate((
            (scores.attribute, candidates.attributes), (scores.object, candidates.objects))))
    answers = len(candidates) if feasible is None else int(feasible.sum())
    best = chance.topk(min(top_k, answers))
    places = candidates.pairs[best.indices]  # (B, k, 2)
    columns = (best.values, attr.gather(1, places[..., 0]), obj.gather(1, places[..., 1]),
               candidates.seen[best.indices])
    names = candidates.attributes, candidates.objects
    singles = [_best_names(table, name, top_k) for table, name in zip((attr, obj), names)]
    for row, parts in enumerate(zip(places.tolist(), *(part.tolist() for part in columns))):
        pairs = tuple(PairScore(names[0][pair[0]], names[1][pair[1]], *values)
                      for pair, *values in zip(*parts))
        yield pairs, singles[0][row], singles[1][row]


def _marginal(chance: Tensor, owner: Tensor, size: int) -> Tensor:
    """Sums over the pairs (B, P) of each primitive, shape (B, size)."""
    return chance.new_zeros(len(chance), size).index_add_(1, owner, chance)


def _best_names(table: Tensor, names: tuple[str, ...], top_k: int) -> list[tuple[NameScore, ...]]:
    best = table.topk(min(top_k, table.shape[1]))
    return [tuple(NameScore(names[i], score) for i, score in zip(*row))
            for row in zip(best.indices.tolist(), best.values.tolist())]


def as_sample(answer: Prediction, candidates: Candidates) -> DataSample:
    """Converts an answer to the form that mmpretrain's inferencers return.

    Args:
        answer (Prediction): With all pairs of ``candidates`` that can be an answer.
        candidates (Candidates): The P pairs.

    Returns:
        DataSample: ``pred_score`` (P,), ``pred_label`` (an index into the candidates) and, as meta
        data, ``img_path`` and ``pred_class``; ``error`` instead for an image without an answer.
    """
    sample = DataSample(metainfo=dict(img_path=answer.image))
    if answer.best is None:
        sample.set_metainfo(dict(error=answer.error))
        return sample
    place = {(candidates.attributes[attr], candidates.objects[obj]): index
             for index, (attr, obj) in enumerate(candidates.pairs.tolist())}
    scores = torch.zeros(len(candidates))
    for pair in answer.pairs:
        scores[place[pair.attribute, pair.object]] = pair.probability
    sample.set_metainfo(dict(pred_class=f'{answer.best.attribute} {answer.best.object}'))
    return sample.set_pred_score(scores).set_pred_label(
        place[answer.best.attribute, answer.best.object])
