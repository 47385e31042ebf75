"""Answers as rows of a CSV file, the same for ``mmcluspro predict``, the demo and corrections."""
from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from mmcluspro.utils.spreadsheet import guard

from .result import Prediction

PAIR_COLUMNS = ('attribute', 'object', 'probability', 'attribute_score', 'object_score', 'seen')


def table_columns(top_k: int) -> list[str]:
    """The header.

    Args:
        top_k (int): Pairs of each image.
    """
    return ['image', 'error', 'abstained'] + [
        f'{name}_{place}' for place in range(1, top_k + 1) for name in PAIR_COLUMNS]


def table_row(prediction: Prediction, top_k: int) -> list[str | int]:
    """The cells of an answer; no cell becomes a formula in a spreadsheet."""
    cells: list[str | int] = [cell for pair in prediction.pairs[:top_k] for cell in (
        guard(pair.attribute), guard(pair.object), f'{pair.probability:.6f}',
        f'{pair.attribute_score:.6f}', f'{pair.object_score:.6f}', int(pair.seen))]
    row = [guard(prediction.image), guard(prediction.error or ''), int(prediction.abstained),
           *cells]
    return row + [''] * (len(table_columns(top_k)) - len(row))


def csv_line(cells: Sequence[str | int]) -> str:
    """One line of CSV, with its end."""
    text = io.StringIO()
    csv.writer(text, lineterminator='\n').writerow(cells)
    return text.getvalue()


def as_csv(predictions: Iterable[Prediction], top_k: int) -> str:
    """A whole file."""
    return csv_line(table_columns(top_k)) + ''.join(
        csv_line(table_row(prediction, top_k)) for prediction in predictions)
