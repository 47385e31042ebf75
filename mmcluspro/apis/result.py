"""What the inferencer returns: plain values, ready for CSV and JSON."""
from __future__ import annotations

from dataclasses import asdict, dataclass
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

    @property
    def best(self) -> PairScore | None:
        """The best pair, None for an image without an answer."""
        return self.pairs[0] if self.pairs else None

    def to_dict(self) -> dict[str, Any]:
        """Dicts, tuples, strings and numbers, which json.dumps takes."""
        return asdict(self)
