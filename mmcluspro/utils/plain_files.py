"""Reads text, JSON, CSV and ``.npz`` arrays that may be damaged: content or a FileError.

CSV is written here and nowhere else. Text is always in quotes: no carriage return, semicolon or
tab in a name begins a row or a cell. Text that a spreadsheet would run as a formula gets an
apostrophe in front, which is taken off on reading, so that names come back as they were.
"""
from __future__ import annotations

import csv
import io
import json
import re
import stat
import time
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mmcluspro.errors import FileError, reason_of

from .digest import content_digest

COPY_AGAIN = 'Copy or download it again, or take another one.'
CELL = 100_000  # characters
RATIO = 200  # floats compress two to one: an array that unpacks to more than this is a bomb
CHECKSUM = 'checksum'


def check_plain(path: str | Path, remedy: str, limit: int = 1 << 30) -> None:
    """Refuses what would never end, or fill the memory, when it is read: pipes, devices, large
    and sparse files."""
    state = Path(path).stat()
    if not stat.S_ISREG(state.st_mode):
        raise FileError(path, 'it is a pipe, a device or a folder, not a plain file', remedy)
    if state.st_size > limit:
        raise FileError(path, f'it has {state.st_size:,} bytes, more than {limit:,}', remedy)


def read_text(path: str | Path, remedy: str, limit: int = 1 << 30) -> str:
    """The content of a UTF-8 file, with or without byte-order mark; line ends as they are."""
    check_plain(path, remedy, limit)
    try:
        with open(path, encoding='utf-8-sig', newline='') as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise FileError(path, f'it is not UTF-8 text ({reason_of(error)})', remedy) from None


def read_json(path: str | Path, kind: type | tuple[type, ...], remedy: str,
              values: int = 50_000_000) -> Any:
    """The content of a JSON file, of type ``kind``.

    Args:
        path (str | Path): The file.
        kind (type): What the content must be, for example dict.
        remedy (str): What to do about a damaged file, a sentence.
        values (int): Maximum number of values in the file: three bytes, ``[],``, become 64 of
            memory. Defaults to 50 million.
    """
    text = read_text(path, remedy)
    count = text.count(',') + text.count('[') + text.count('{')  # those in strings, too
    if count > values:
        raise FileError(path, f'it holds {count:,} values, more than {values:,}', remedy)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(path, f'it is not JSON, or damaged ({reason_of(error)})', remedy) from None
    if not isinstance(content, kind):
        raise FileError(path, f'it holds a {type(content).__name__}', remedy)
    return content


def with_checksum(content: dict[str, Any]) -> dict[str, Any]:
    """The same fields and a digest of them, for :func:`verified`."""
    return dict(content, **{CHECKSUM: content_digest(content)})


def verified(content: dict[str, Any], path: str | Path, remedy: str,
             fields: Sequence[str]) -> dict[str, Any]:
    """The fields of :func:`with_checksum` without the digest; files of before have none.

    Args:
        content (dict): What the file holds.
        path (str | Path): The file.
        remedy (str): What to do about a damaged file, a sentence.
        fields (Sequence[str]): The fields that it may have: a damaged name of the checksum must
            not pass as a file of before.
    """
    found = {key: value for key, value in content.items() if key != CHECKSUM}
    unknown = [key for key in found if key not in fields]
    if unknown:
        raise FileError(path, f'it has the field {unknown[0][:80]!r}, which is not known', remedy)
    if CHECKSUM in content and content[CHECKSUM] != content_digest(found):
        raise FileError(path, 'its content does not fit its checksum: it is damaged, or was '
                        'edited', remedy, CHECKSUM)
    return found


def split_cells(line: str, delimiter: str) -> list[str]:
    """Cells of one line of CSV; a quote that is not closed does not reach the next line.

    Raises:
        ValueError: Says what is wrong with the line.
    """
    if len(line) > CELL:
        raise ValueError(f'the line has {len(line):,} characters, more than {CELL:,}')
    try:
        rows = list(csv.reader(io.StringIO(line, newline=''), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise ValueError(f'the quotes are not closed ({error}): write "" for a quote inside '
                         'quotes, or leave stray quotes out') from None
    if len(rows) > 1:
        raise ValueError('there is a line break inside a cell')
    cells = rows[0] if rows else []
    if any(not cell.isprintable() for cell in cells):
        raise ValueError('a cell holds a control character')
    return cells


def read_npz(path: str | Path, remedy: str = COPY_AGAIN,
             wanted: Callable[[str], bool] = lambda name: True) -> dict[str, np.ndarray]:
    """Arrays of an ``.npz`` file by name; what a header claims is compared before it is read.

    Args:
        path (str | Path): The file.
        remedy (str): What to do about a damaged file, a sentence.
        wanted (Callable): Which names to read. Defaults to all.
    """
    found: dict[str, np.ndarray] = {}
    name = ''
    try:
        with zipfile.ZipFile(path) as archive:
            if not archive.infolist():
                raise ValueError('it holds no arrays')
            for info in archive.infolist():
                name = info.filename.removesuffix('.npy')
                if name in found:
                    raise ValueError('it is there twice')
                if wanted(name):
                    found[name] = _read_array(archive, info)
            for info in archive.infolist() if not found else ():
                archive.open(info).close()  # a damaged name differs from the one at the record
    except Exception as error:  # damaged archives raise almost anything
        raise FileError(path, f'it is not an .npz file, or it is damaged ({reason_of(error)})',
                        remedy, f'array {name!r}' if name else None) from error
    return found


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    if info.file_size > 1 << 24 and info.file_size > RATIO * info.compress_size:
        raise ValueError(f'it unpacks to {info.file_size:,} bytes from {info.compress_size:,}')
    with archive.open(info) as record:
        version = np.lib.format.read_magic(record)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0,
                       (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = read_header(record)
        count = 1
        for size in shape:
            count *= size
        if dtype.hasobject or min(shape, default=0) < 0 or (
                count * dtype.itemsize != info.file_size - record.tell()):
            raise ValueError(f'its header claims {dtype} of shape {shape}')
    with archive.open(info) as record:
        return np.lib.format.read_array(record, allow_pickle=False)


# A cell that begins with one of these signs is a formula to a spreadsheet; the wide ones to some.
SIGNS = r'[=+\-@\t\r＝＋－＠]'
FORMULA = re.compile(f"'*{SIGNS}")
GUARDED = re.compile(f"'+{SIGNS}")


def guard(cell: str) -> str:
    """A cell that stays text in a spreadsheet: a quote before a sign that begins a formula."""
    return f"'{cell}" if FORMULA.match(cell) else cell


def unguard(cell: str) -> str:
    """The inverse of :func:`guard`."""
    return cell[1:] if GUARDED.match(cell) else cell


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Lines of CSV: text guarded and in quotes, numbers bare, None as empty text.

    Args:
        rows (Iterable): Cells of each line; the header is one of them.
    """
    text = io.StringIO(newline='')
    csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator='\n').writerows(
        [guard(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return text.getvalue()


class CsvTable(NamedTuple):
    """A table as it stands in a file.

    Attributes:
        path (str | Path): The file.
        names (list[str]): The header, in small letters.
        rows (list[tuple[int, list[str]]]): Line number (the header is line 1) and cells.
        header (str): Its line.
    """
    path: str | Path
    names: list[str]
    rows: list[tuple[int, list[str]]]
    header: str

    def columns(self, needed: Sequence[str], remedy: str) -> list[tuple[int, dict[str, str]]]:
        """Line number and cells of some columns of each row, as they were before :func:`guard`.

        Args:
            needed (Sequence[str]): Names of the columns.
            remedy (str): What to do about a file that lacks one, or about a row that has more cells
                than the header or too few for these columns; a sentence.
        """
        missing = [name for name in needed if name not in self.names]
        if missing:
            raise FileError(self.path, f'its header lacks {", ".join(missing)}', remedy)
        place = {name: self.names.index(name) for name in needed}
        found = []
        for line, cells in self.rows:
            if len(cells) <= max(place.values()) or any(map(str.strip, cells[len(self.names):])):
                raise FileError(self.path, f'{len(cells)} cells under {len(self.names)} columns',
                                remedy, f'line {line}')
            found.append((line, {name: unguard(cells[i]) for name, i in place.items()}))
        return found


def read_csv(path: str | Path, wanted: Sequence[str], remedy: str) -> CsvTable:
    """Reads a CSV file in UTF-8, see :func:`parse_csv`."""
    return parse_csv(read_text(path, remedy), path, wanted, remedy)


def parse_csv(text: str, path: str | Path, wanted: Sequence[str], remedy: str) -> CsvTable:
    """Header and rows; empty rows are left out.

    Comma, semicolon or tab divide the columns, whichever makes most of the wanted names.

    Args:
        text (str): Content of the file, line ends as they are.
        path (str | Path): The file.
        wanted (Sequence[str]): Names of columns.
        remedy (str): What to do about a damaged file, a sentence.
    """
    file = io.StringIO(text, newline='')
    header = file.readline().strip()

    def names(delimiter: str) -> list[str]:
        try:
            return [name.strip().lower() for name in split_cells(header, delimiter)]
        except ValueError:  # with this delimiter it is not a header
            return []

    delimiter = max(',;\t', key=lambda sign: len(set(names(sign)) & set(wanted)))
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    try:
        rows = [(reader.line_num + 1, cells) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        raise FileError(path, 'it is not a CSV file, or the quotes are not closed '
                        f'({reason_of(error)})', remedy, f'line {reader.line_num + 1}') from None
    return CsvTable(path, names(delimiter), rows, header)


Reader = TypeVar('Reader', bound=Callable[..., Any])
# A file that is younger than this may change again within the resolution of its time stamp.
SETTLED = 1_000_000_000  # nanoseconds


def once_per_file(kept: int) -> Callable[[Reader], Reader]:
    """Decorates a reader ``function(path, ...)``: the same unchanged file is read once.

    Callers share the result and must not change it. Errors are not kept.

    Args:
        kept (int): How many results are kept, the last used ones.
    """

    def decorate(function: Reader) -> Reader:
        results: OrderedDict[tuple, Any] = OrderedDict()

        @wraps(function)
        def reader(path: str | Path, *args: Any, **kwargs: Any) -> Any:
            try:
                state = Path(path).expanduser().stat()
            except OSError:
                return function(path, *args, **kwargs)  # whose message says what is missing
            key = (str(Path(path).expanduser().absolute()), state.st_ino, state.st_mtime_ns,
                   state.st_size, args, tuple(sorted(kwargs.items())))
            if key in results:
                results.move_to_end(key)
                return results[key]
            result = function(path, *args, **kwargs)
            if time.time_ns() - state.st_mtime_ns > SETTLED:
                results[key] = result
                while len(results) > kept:
                    results.popitem(last=False)
            return result

        return reader  # type: ignore[return-value]

    return decorate
