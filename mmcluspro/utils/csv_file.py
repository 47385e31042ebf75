"""CSV: the one place that writes it, and the one that reads tables.

Text is always in quotes: no carriage return, semicolon or tab in a name begins a row or a cell.
Text that a spreadsheet would run as a formula gets an apostrophe in front, which is taken off on
reading, so that names come back as they were.
"""
from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mmcluspro.errors import FileError, reason_of

from .plain_files import read_text, split_cells

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
