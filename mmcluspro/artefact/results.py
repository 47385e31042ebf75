"""Answers: ranked by their scores, as plain values, and in files that can be continued."""
from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from mmpretrain.structures import DataSample
from torch import Tensor

from mmcluspro.errors import FileError, sentence_of
from mmcluspro.evaluation import Calibration, probabilities
from mmcluspro.models import Candidates
from mmcluspro.models.structures import Scores
from mmcluspro.utils.files import write_bytes, write_text
from mmcluspro.utils.locks import held
from mmcluspro.utils.plain_files import csv_text, parse_csv, unguard


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
        cells (Sequence[str]): Of a line, after :func:`~mmcluspro.utils.plain_files.unguard`.

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


SUFFIXES = ('.csv', '.json', '.jsonl')
REMEDY = 'Give another --out, or remove the file.'


class ResultFile:
    """One record per image: a line of CSV or JSON lines, or an element of a JSON list.

    ``<name>.run.json`` next to it records how the file was made, so that records of another model
    or of other pairs are not added, and ``<name>.images.jsonl`` size and time of each image, so
    that one that was replaced does not keep its answer.

    Args:
        path (str | Path): Ends with .csv, .json or .jsonl.
        facts (dict): What the records are made with, plain values.
        top_k (int): Pairs in a line of CSV.
        images (Sequence[str]): Files to answer. Defaults to ().

    Attributes:
        done (dict[str, dict]): ``error`` and ``abstained`` of the images that are there.
        changed (int): Images whose record was dropped, because the file is another one now.
    """

    def __init__(self, path: str | Path, facts: dict[str, Any], top_k: int,
                 images: Sequence[str] = ()) -> None:
        self.path, self.top_k = check_suffix(path), top_k
        self.facts_path = self.path.with_name(self.path.name + '.run.json')
        self.states_path = self.path.with_name(self.path.name + '.images.jsonl')
        # Before an image is read: if it changes in between, it is answered again next time.
        self.states = {image: state_of(image) for image in images}
        self.done: dict[str, dict[str, Any]] = {}
        self.changed = 0
        with ExitStack() as stack:
            # Another file than the result, which is replaced, and before the first look at it.
            stack.enter_context(held(self.path.with_name(f'{self.path.name}.lock'),
                                     f'The result file {self.path}', 'give another --out'))
            if self.path.exists() and self.path.stat().st_size:
                self._check_facts(facts)
                stale = self._stale()
                kept = self._read(stale)
            else:
                write_text(self.facts_path, json.dumps(facts, indent=2) + '\n')
                write_bytes(self.states_path, b'')
                kept = self._header()
            write_bytes(self.path, kept)
            self._file = stack.enter_context(open(self.path, 'r+b', buffering=0))
            self._file.seek(0, os.SEEK_END)
            self._states = stack.enter_context(open(self.states_path, 'ab', buffering=0))
            self._held = stack.pop_all()

    def append(self, predictions: Sequence[Prediction]) -> None:
        """Adds records with a single write, so that the file is complete before and after.

        Raises:
            OSError: The file cannot be written, for example because the disk is full. Earlier
                records are intact.
        """
        if not predictions:
            return
        size = os.fstat(self._file.fileno()).st_size
        records = [self._record(prediction) for prediction in predictions]
        if self.path.suffix == '.json':
            text = ('' if not self.done else ',') + '\n' + ',\n'.join(records) + '\n]\n'
            self._file.seek(-2 if not self.done else -3, os.SEEK_END)
        else:
            text = ''.join(records)
        # First: a state without a record does no harm. Each on a line of its own, after any half.
        states = ''.join('\n' + json.dumps([each.image, self.states.get(each.image)])
                         for each in predictions)
        try:
            _write_all(self._states, states.encode())
            _write_all(self._file, text.encode(errors='surrogateescape'))
        except OSError as error:
            self._mend(size)
            raise OSError(
                error.errno, f'{self.path} cannot be written ({error.strerror}); {len(self.done)} '
                'images are in it. Make room and run the same command again') from error
        self.done |= {prediction.image: dict(error=prediction.error,
                                             abstained=prediction.abstained)
                      for prediction in predictions}

    def _mend(self, size: int) -> None:
        """Removes a half-written record."""
        with suppress(OSError):
            self._file.truncate(size)
            self._file.seek(0, os.SEEK_END)
            if self.path.suffix == '.json':
                end = b'[]\n' if not self.done else b'\n]\n'
                self._file.seek(-3, os.SEEK_END)
                self._file.write(end)

    def close(self) -> None:
        """Closes the file, and lets another process write to it."""
        self._held.close()

    def _header(self) -> bytes:
        if self.path.suffix == '.json':
            return b'[]\n'
        return csv_text([self.columns]).encode() if self.path.suffix == '.csv' else b''

    @property
    def columns(self) -> list[str]:
        """Header of the CSV."""
        return table_columns(self.top_k)

    def _record(self, prediction: Prediction) -> str:
        if self.path.suffix == '.csv':
            return csv_text([table_row(prediction, self.top_k)])
        # A file name that is not UTF-8 has no character to stand for it: then \\udcff and the like.
        ascii_only = not _is_text(prediction.image)
        text = json.dumps(prediction.to_dict(), ensure_ascii=ascii_only, allow_nan=False)
        return text if self.path.suffix == '.json' else text + '\n'

    def _check_facts(self, facts: dict[str, Any]) -> None:
        try:
            before = json.loads(self.facts_path.read_text())
        except (OSError, ValueError):
            raise ValueError(
                f'{self.path} exists, but without a readable {self.facts_path.name}, so '
                'nothing can be added to it. Give another --out, or remove the file.') from None
        other = [f'{key}: {before.get(key)!r}, now {facts.get(key)!r}'
                 for key in {**facts, **before} if before.get(key) != facts.get(key)]
        if other:
            raise ValueError(
                f'{self.path} was made with something else ({"; ".join(other)}). Give another '
                '--out, or remove the file to start over.')

    def _stale(self) -> set[str]:
        """Images that are not the files that were answered."""
        before: dict[str, Any] = {}
        for line in self.states_path.read_text().split('\n') if self.states_path.exists() else ():
            with suppress(ValueError, TypeError):  # a half-written line
                image, state = json.loads(line)
                before[image] = state
        return {image for image, state in self.states.items()
                if before.get(image) not in (None, state)}

    def _read(self, stale: set[str]) -> bytes:
        """Fills ``done``; returns the file without a half-written end and without stale records."""
        text = self.path.read_bytes().decode(errors='surrogateescape')
        if self.path.suffix == '.csv':
            kept = self._read_csv(text, stale)
        else:
            kept = self._read_json(text, stale)
        return kept.encode(errors='surrogateescape')

    def _read_csv(self, text: str, stale: set[str]) -> str:
        whole = text[:text.rfind('\n') + 1]
        if whole.count('"') % 2:  # the half-written end has a line break inside a name
            whole = whole[:whole.rfind('\n', 0, whole.rfind('"')) + 1]
        table = parse_csv(whole, self.path, self.columns, REMEDY)
        if table.names != self.columns:
            raise FileError(self.path, 'it has other columns than this command writes', REMEDY)
        found = []
        for line, cells in table.rows:
            try:
                if len(cells) != len(self.columns):
                    raise ValueError(f'{len(cells)} cells under {len(self.columns)} columns')
                found.append(from_row(list(map(unguard, cells))))
            except ValueError as error:
                raise FileError(self.path, sentence_of(error), REMEDY, f'line {line}') from None
        self.changed = sum(each.image in stale for each in found)
        found = [each for each in found if each.image not in stale]
        self.done = {each.image: dict(error=each.error, abstained=each.abstained)
                     for each in found}
        return self._header().decode() + ''.join(map(self._record, found))

    def _read_json(self, text: str, stale: set[str]) -> str:
        kept = []
        for line in text.split('\n'):
            try:
                record = json.loads(line.strip().rstrip(','))
            except ValueError:  # brackets, or a half-written line
                continue
            if not isinstance(record, dict) or 'image' not in record:
                continue
            if record['image'] in stale:
                self.changed += 1
            else:
                kept.append(line.strip().rstrip(','))
                self.done[record['image']] = record
        if self.path.suffix == '.jsonl':
            return ''.join(line + '\n' for line in kept)
        return '[\n' + ',\n'.join(kept) + '\n]\n' if kept else '[]\n'


def state_of(image: str) -> list[int] | None:
    """Size and time of change (ns) of a file, without reading it; None if there is none."""
    try:
        found = os.stat(image)
    except (OSError, ValueError):
        return None
    return [found.st_size, found.st_mtime_ns]


def check_suffix(path: str | Path) -> Path:
    """Refuses names whose ending is not a known format."""
    path = Path(path).expanduser()
    if path.suffix not in SUFFIXES:
        raise ValueError(f'--out must end with {", ".join(SUFFIXES)}, got {path}.')
    return path


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _write_all(file: io.FileIO, content: bytes) -> None:
    """Writes all bytes: a full disk may accept a part of a write without an error."""
    view = memoryview(content)
    while view:
        view = view[file.write(view):]
