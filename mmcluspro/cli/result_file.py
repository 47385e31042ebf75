"""Result files that are complete after every batch and can be continued."""
from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mmcluspro.apis.result import Prediction, csv_line, table_columns, table_row
from mmcluspro.utils.atomic import write_bytes, write_text
from mmcluspro.utils.locks import take_lock
from mmcluspro.utils.spreadsheet import unguard

SUFFIXES = ('.csv', '.json', '.jsonl')


class ResultFile:
    """One record per image: a line of CSV or JSON lines, or an element of a JSON list.

    ``<name>.run.json`` next to it records how the file was made, so that records of another model
    or of other pairs are not added.

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
            self._open().close()  # refused while another process writes
            self._check_facts(facts)
            kept = self._read()
        else:
            write_text(self.facts_path, json.dumps(facts, indent=2) + '\n')
            kept = self._header()
        write_bytes(self.path, kept)
        self._file = self._open()
        self._file.seek(0, os.SEEK_END)

    def _open(self) -> io.FileIO:
        file = open(self.path, 'r+b', buffering=0)  # noqa: SIM115
        if not take_lock(file):
            file.close()
            raise ValueError(f'Another process writes to {self.path}. Wait for it, or give another '
                             '--out.')
        return file

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
        try:
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
        """Closes the file."""
        self._file.close()

    def _header(self) -> bytes:
        if self.path.suffix == '.json':
            return b'[]\n'
        return csv_line(self.columns).encode() if self.path.suffix == '.csv' else b''

    @property
    def columns(self) -> list[str]:
        """Header of the CSV."""
        return table_columns(self.top_k)

    def _record(self, prediction: Prediction) -> str:
        if self.path.suffix == '.csv':
            return csv_line(table_row(prediction, self.top_k))
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
        other = [f'{key}: {before.get(key)!r}, now {value!r}' for key, value in facts.items()
                 if before.get(key) != value]
        if other:
            raise ValueError(
                f'{self.path} was made with something else ({"; ".join(other)}). Give another '
                '--out, or remove the file to start over.')

    def _read(self) -> bytes:
        """Fills ``done``; returns the file without a half-written end."""
        text = self.path.read_bytes().decode(errors='surrogateescape')
        if self.path.suffix == '.csv':
            kept = self._read_csv(text)
        else:
            kept = self._read_json(text)
        return kept.encode(errors='surrogateescape')

    def _read_csv(self, text: str) -> str:
        whole = text[:text.rfind('\n') + 1]
        try:
            rows = list(csv.reader(io.StringIO(whole, newline='')))
        except csv.Error as error:
            raise ValueError(f'{self.path} is damaged ({error}). Give another --out, or remove the '
                             'file.') from error
        if not rows or rows[0] != self.columns:
            raise ValueError(f'{self.path} has other columns than this command writes. Give '
                             'another --out, or remove the file.')
        rows = [row for row in rows[1:] if len(row) == len(self.columns)]
        self.done = {unguard(row[0]): dict(error=unguard(row[1]) or None, abstained=row[2] == '1')
                     for row in rows}
        return ''.join(map(csv_line, [self.columns, *rows]))

    def _read_json(self, text: str) -> str:
        kept = []
        for line in text.split('\n'):
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

