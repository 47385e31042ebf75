"""Answers: plain values, ready for CSV and JSON."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from mmcluspro.utils.csv_file import csv_text


@dataclass(slots=True)
class PairScore:
    """One pair of a prediction.

    Attributes:
        attribute (str): Raw name.
        object (str): Raw name.
        probability (float): Calibrated probability over all requested pairs.
        attribute_score (float): Probability of the attribute alone, p(a).
        object_score (float): Probability of the object alone, p(o).
        seen (bool): Whether the pair occurs in the training data.
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
        image (str): Path, or the position in the list for images without a path.
        pairs (tuple[PairScore]): Best pairs first; empty when ``error`` is set.
        attributes (tuple[NameScore]): Best attributes first.
        objects (tuple[NameScore]): Best objects first.
        abstained (bool): Whether the best probability is below the threshold.
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
            row (tuple): Best first. Scores with NaN or infinity are not an answer.
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
        """The best pair, or None if the image has no answer."""
        return self.pairs[0] if self.pairs else None

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers, ready for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value
                for name, value in asdict(self).items()}

    def to_row(self, top_k: int | None = None) -> dict[str, Any]:
        """One row of a table: the columns of ``mmcluspro predict --out result.csv``.

        Args:
            top_k (int, optional): Pairs in the row. Defaults to None: all of them.
        """
        row: dict[str, Any] = dict(image=self.image, error=self.error, abstained=self.abstained)
        for place, pair in enumerate(self.pairs[:top_k], 1):
            row |= {f'{name}_{place}': value for name, value in asdict(pair).items()}
        return row


class Predictions(list[Prediction]):
    """A list of the answers for several images, which can be turned into a table."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain values, ready for ``json.dumps``."""
        return [prediction.to_dict() for prediction in self]

    def to_frame(self) -> Any:
        """A pandas ``DataFrame``, one row per image, see :meth:`Prediction.to_row`.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError('to_frame() needs pandas, which is not installed: pip install '
                              'pandas') from None
        return pandas.DataFrame([prediction.to_row() for prediction in self])


PAIR_COLUMNS = ('attribute', 'object', 'probability', 'attribute_score', 'object_score', 'seen')


def table_columns(top_k: int) -> list[str]:
    """The header.

    Args:
        top_k (int): Pairs of each image.
    """
    return ['image', 'error', 'abstained'] + [
        f'{name}_{place}' for place in range(1, top_k + 1) for name in PAIR_COLUMNS]


def table_row(prediction: Prediction, top_k: int) -> list[str | float | None]:
    """The cells of an answer."""
    row: list[str | float | None] = [
        prediction.image, prediction.error or '', int(prediction.abstained)]
    for pair in prediction.pairs[:top_k]:
        row += [pair.attribute, pair.object, round(pair.probability, 6),
                round(pair.attribute_score, 6), round(pair.object_score, 6), int(pair.seen)]
    return row + [None] * (len(table_columns(top_k)) - len(row))


def from_row(cells: Sequence[str]) -> Prediction:
    """The answer that :func:`table_row` wrote, without what it leaves out.

    Args:
        cells (Sequence[str]): Of a line, after :func:`~mmcluspro.utils.csv_file.unguard`.

    Raises:
        ValueError: A number is not one.
    """
    image, error, abstained, *rest = cells
    parts = [rest[start:start + len(PAIR_COLUMNS)]
             for start in range(0, len(rest), len(PAIR_COLUMNS))]
    pairs = [PairScore(part[0], part[1], float(part[2]), float(part[3]), float(part[4]),
                       _is_set(part[5])) for part in parts if any(part)]
    return Prediction(image, tuple(pairs), abstained=_is_set(abstained), error=error or None)


def _is_set(cell: str) -> bool:
    if cell not in ('0', '1'):
        raise ValueError(f'{cell!r} is neither 0 nor 1')
    return cell == '1'


def as_csv(predictions: Iterable[Prediction], top_k: int) -> str:
    """A whole file."""
    return csv_text([table_columns(top_k), *(table_row(each, top_k) for each in predictions)])
