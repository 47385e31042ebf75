"""What the inferencer returns: plain values, ready for CSV and JSON."""
from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any


@dataclass(slots=True)
class PairScore:
    """One pair of a prediction.

    Attributes:
        attribute (str): Raw name.
        object (str): Raw name.
        probability (float): Calibrated, over all pairs that were asked for.
        attribute_score (float): Probability of the attribute alone, p(a).
        object_score (float): Probability of the object alone, p(o).
        seen (bool): Whether training had images of the pair.
    """
    attribute: str
    object: str
    probability: float
    attribute_score: float
    object_score: float
    seen: bool


@dataclass(slots=True)
class NameScore:
    """An attribute or object and its probability on its own path."""
    name: str
    score: float


@dataclass(frozen=True)
class Prediction:
    """The answer for one image.

    Attributes:
        image (str): Path, or the place in the list for images without one.
        pairs (tuple[PairScore]): Best pairs first; empty when ``error`` is set.
        attributes (tuple[NameScore]): Best attributes first.
        objects (tuple[NameScore]): Best objects first.
        abstained (bool): Whether the best pair stays below the threshold.
        error (str | None): Why there is no answer, for example a damaged file.
    """
    image: str
    pairs: tuple[PairScore, ...] = ()
    attributes: tuple[NameScore, ...] = ()
    objects: tuple[NameScore, ...] = ()
    abstained: bool = False
    error: str | None = None

    @classmethod
    def of(cls, image: str, row: tuple[tuple[PairScore, ...], tuple[NameScore, ...],
                                       tuple[NameScore, ...]],
           threshold: float | None = None) -> Prediction:
        """The answer from the best pairs, attributes and objects of an image.

        Args:
            image (str): Its name.
            row (tuple): Best first. Scores with NaN or infinity are no answer.
            threshold (float, optional): Abstain below this probability. Defaults to None: never.
        """
        pairs, attributes, objects = row
        scores = [score for pair in pairs
                  for score in (pair.probability, pair.attribute_score, pair.object_score)]
        scores += [name.score for name in (*attributes, *objects)]
        if not all(map(isfinite, scores)):
            return cls(image, error='the scores are NaN or infinite: the image, the weights or the '
                       'precision are at fault')
        return cls(image, pairs, attributes, objects,
                   threshold is not None and not pairs[0].probability >= threshold)

    @property
    def best(self) -> PairScore | None:
        """The best pair, None for an image without an answer."""
        return self.pairs[0] if self.pairs else None

    def to_dict(self) -> dict[str, Any]:
        """Dicts, tuples, strings and numbers, which json.dumps takes."""
        return asdict(self)
