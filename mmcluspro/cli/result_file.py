"""Result files that are complete after every batch and can be continued."""
from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from mmcluspro.artefact.result import Prediction, from_row, table_columns, table_row
from mmcluspro.errors import FileError, sentence_of
from mmcluspro.utils.atomic import write_bytes, write_text
from mmcluspro.utils.csv_file import csv_text, parse_csv, unguard
from mmcluspro.utils.locks import held

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
