"""Result files that are complete after every batch, and go on where they ended."""
from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmcluspro.apis.result import Prediction

SUFFIXES = ('.csv', '.json', '.jsonl')
PAIR_COLUMNS = ('attribute', 'object', 'probability', 'attribute_score', 'object_score', 'seen')


class ResultFile:
    """One record an image: a line of CSV or JSON lines, or an element of a JSON list.

    Beside it ``<name>.run.json`` keeps what the records were made with, so that nobody adds
    records of another model or of other pairs.

    Args:
        path (str | Path): Ends with .csv, .json or .jsonl.
        facts (dict): What the records are made with, plain values.
        top_k (int): Pairs in a line of CSV.

    Attributes:
        done (dict[str, dict]): ``error`` and ``abstained`` of the images that are there.
    """

    def __init__(self, path: str | Path, facts: dict[str, Any], top_k: int) -> None:
        self.path, self.top_k = check_suffix(path), top_k
        self.facts_path = self.path.with_name(self.path.name + '.run.json')
        self.done: dict[str, dict[str, Any]] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size:
            self._check_facts(facts)
            kept = self._read()
        else:
            self.facts_path.write_text(json.dumps(facts, indent=2) + '\n')
            kept = self._header()
        # Written beside and renamed: an end at this moment loses nothing.
        part = self.path.with_name(self.path.name + '.part')
        part.write_bytes(kept)
        os.replace(part, self.path)
        self._file = open(self.path, 'r+b', buffering=0)  # noqa: SIM115
        self._file.seek(0, os.SEEK_END)

    def append(self, predictions: Sequence[Prediction]) -> None:
        """Adds records with a single write, so that the file is complete before and after."""
        if not predictions:
            return
        records = [self._record(prediction) for prediction in predictions]
        if self.path.suffix == '.json':
            text = ('' if not self.done else ',') + '\n' + ',\n'.join(records) + '\n]\n'
            self._file.seek(-2 if not self.done else -3, os.SEEK_END)
        else:
            text = ''.join(records)
        self._file.write(text.encode())
        self.done |= {prediction.image: dict(error=prediction.error,
                                             abstained=prediction.abstained)
                      for prediction in predictions}

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _header(self) -> bytes:
        if self.path.suffix == '.json':
            return b'[]\n'
        return _line(self.columns).encode() if self.path.suffix == '.csv' else b''

    @property
    def columns(self) -> list[str]:
        """Header of the CSV."""
        return ['image', 'error', 'abstained'] + [
            f'{name}_{place}' for place in range(1, self.top_k + 1) for name in PAIR_COLUMNS]

    def _record(self, prediction: Prediction) -> str:
        if self.path.suffix == '.csv':
            cells = [cell for pair in prediction.pairs for cell in (
                pair.attribute, pair.object, f'{pair.probability:.6f}',
                f'{pair.attribute_score:.6f}', f'{pair.object_score:.6f}', int(pair.seen))]
            row = [prediction.image, prediction.error or '', int(prediction.abstained), *cells]
            return _line(row + [''] * (len(self.columns) - len(row)))
        text = json.dumps(prediction.to_dict(), ensure_ascii=False)
        return text if self.path.suffix == '.json' else text + '\n'

    def _check_facts(self, facts: dict[str, Any]) -> None:
        try:
            before = json.loads(self.facts_path.read_text())
        except (OSError, ValueError):
            raise ValueError(
                f'{self.path} exists, but without a readable {self.facts_path.name}, so that '
                'nothing can be added to it. Give another --out, or remove the file.') from None
        other = [f'{key}: {before.get(key)!r}, now {value!r}' for key, value in facts.items()
                 if before.get(key) != value]
        if other:
            raise ValueError(
                f'{self.path} was made with something else ({"; ".join(other)}). Give another '
                '--out, or remove the file to begin anew.')

    def _read(self) -> bytes:
        """Fills ``done``; returns the file without a half-written end."""
        text = self.path.read_bytes().decode(errors='replace')
        if self.path.suffix == '.csv':
            kept = self._read_csv(text)
        else:
            kept = self._read_json(text)
        return kept.encode()

    def _read_csv(self, text: str) -> str:
        whole = text[:text.rfind('\n') + 1]
        rows = list(csv.reader(io.StringIO(whole, newline='')))
        if not rows or rows[0] != self.columns:
            raise ValueError(f'{self.path} has other columns than this command writes. Give '
                             'another --out, or remove the file.')
        rows = [row for row in rows[1:] if len(row) == len(self.columns)]
        self.done = {row[0]: dict(error=row[1] or None, abstained=row[2] == '1') for row in rows}
        return ''.join(map(_line, [self.columns, *rows]))

    def _read_json(self, text: str) -> str:
        kept = []
        for line in text.splitlines():
            try:
                record = json.loads(line.strip().rstrip(','))
            except ValueError:  # brackets, or a half-written line
                continue
            if isinstance(record, dict) and 'image' in record:
                kept.append(line.strip().rstrip(','))
                self.done[record['image']] = record
        if self.path.suffix == '.jsonl':
            return ''.join(line + '\n' for line in kept)
        return '[\n' + ',\n'.join(kept) + '\n]\n' if kept else '[]\n'


def check_suffix(path: str | Path) -> Path:
    """Refuses names whose ending says no format."""
    path = Path(path).expanduser()
    if path.suffix not in SUFFIXES:
        raise ValueError(f'--out must end with {", ".join(SUFFIXES)}, got {path}.')
    return path


def _line(cells: Sequence[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator='\n').writerow(cells)
    return buffer.getvalue()
