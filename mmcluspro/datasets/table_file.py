"""Own data as a CSV file: ``image,attribute,object,split``."""
import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from mmcluspro.errors import Fault, FileError, raise_faults
from mmcluspro.utils.atomic import write_text
from mmcluspro.utils.inside import leaves
from mmcluspro.utils.once import once_per_file
from mmcluspro.utils.plain_files import read_text, split_cells
from mmcluspro.utils.spreadsheet import guard, unguard

from .splits import PHASES, PairLines, check_primitives

COLUMNS = ('image', 'attribute', 'object', 'split')
LAYOUT = f'A table has one image per line under the header {",".join(COLUMNS)}.'
MAKE_ONE = ("set make_split=dict(seed=0) in the config, or write one into a file that you can look "
            'at with tools/dataset_converters/make_split.py')


class TableRow(NamedTuple):
    """One image. ``line`` is its place in the file (the header is line 1)."""
    image: str
    attribute: str
    object: str
    split: str = ''
    line: int = 0


@once_per_file(kept=2)
def read_table(path: str | Path, need_split: bool = True) -> list[TableRow]:
    """Reads a table with a header; columns in any order, others are ignored.

    Comma, semicolon or tab divide the columns (whichever makes the header's
    names); UTF-8, with or without byte-order mark.

    Args:
        path (str | Path): The file.
        need_split (bool): Whether the column ``split`` must be there. Defaults
            to True.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f'No table at {path}. Set the config field table to a CSV file with the header '
            f'{",".join(COLUMNS)}, or to None for a tree of folders attribute_object/.')
    file = io.StringIO(read_text(path, 'Save it as "CSV UTF-8".'), newline='')
    names, delimiter = _header(file.readline(), path, need_split)
    reader = csv.reader(file, delimiter=delimiter, strict=True)
    try:
        cells = [(reader.line_num + 1, line) for line in reader]
    except csv.Error as error:
        raise FileError(f'{path}:{reader.line_num + 1}', f'the quotes are not closed ({error})',
                        'Write "" for a quote inside quotes, or leave stray quotes out.') from None
    rows, faults = _rows(cells, names, path)
    raise_faults(faults, LAYOUT)
    if not rows:
        raise FileError(path, 'it has a header, but no image', LAYOUT)
    return rows


def table_pairs(rows: Iterable[TableRow], path: str | Path,
                allow_unknown: bool = False) -> dict[str, PairLines]:
    """The pairs of each phase with the line where they first occur."""
    lists: dict[str, PairLines] = {phase: {} for phase in PHASES}
    for row in rows:
        lists[row.split].setdefault((row.attribute, row.object), row.line)
    if not lists['train']:
        raise ValueError(f"{path} has no row with split 'train', so there is no seen pair; "
                         f'correct the column split, or remove it and {MAKE_ONE}.')
    check_primitives(lists, dict.fromkeys(PHASES, path), allow_unknown)
    return lists


def write_table(path: str | Path, rows: Sequence[TableRow]) -> None:
    """Writes the four columns, the same bytes on every machine."""
    write_text(Path(path).expanduser(), table_text(rows))


def table_text(rows: Sequence[TableRow]) -> str:
    """The text that :func:`write_table` writes."""
    file = io.StringIO(newline='')
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(COLUMNS)
    writer.writerows([guard(cell) for cell in row[:4]] for row in rows)
    return file.getvalue()


def _header(line: str, path: Path, need_split: bool) -> tuple[list[str], str]:
    def names(delimiter: str) -> list[str]:
        try:
            return [name.strip().lower() for name in split_cells(line.strip(), delimiter)]
        except ValueError:  # with this delimiter it is not a header
            return []

    delimiter = max(',;\t', key=lambda sign: len(set(names(sign)) & set(COLUMNS)))
    found = names(delimiter)
    needed = COLUMNS if need_split else COLUMNS[:3]
    missing = [name for name in needed if name not in found]
    if missing == ['split']:
        raise FileError(f'{path}:1', f'the table has no column split; {MAKE_ONE}', LAYOUT)
    if missing:
        raise FileError(f'{path}:1', f'the header must name {",".join(COLUMNS)}; '
                        f'{",".join(missing)} is missing from {line.strip()[:200]!r}',
                        'Write the header as the first line.')
    if len(set(found)) < len(found):
        raise FileError(f'{path}:1', f'a column is twice in the header {line.strip()[:200]!r}',
                        'Remove one of them.')
    return found, delimiter


def _rows(cells: Sequence[tuple[int, list[str]]], names: list[str],
          path: Path) -> tuple[list[TableRow], list[Fault]]:
    place = {name: names.index(name) for name in COLUMNS if name in names}
    rows, faults, first = [], [], dict[str, int]()
    for line, row in cells:
        if not any(cell.strip() for cell in row):
            continue
        value = {name: unguard(row[i].strip()) if i < len(row) else ''
                 for name, i in place.items()}
        value['image'] = value['image'].replace('\\', '/')
        empty = [name for name, text in value.items() if not text]
        strange = [name for name, text in value.items() if not text.isprintable()]
        if any(cell.strip() for cell in row[len(names):]):
            what = f'{len(row)} cells under {len(names)} columns'
        elif strange:
            what = (f'a line break or control character under {", ".join(strange)}; is there a '
                    'stray quote?')
        elif empty:
            what = f'nothing under {", ".join(empty)}'
        elif value.get('split', 'train') not in PHASES:
            what = f"split must be 'train', 'val' or 'test', got {value['split']!r}"
        elif leaves(value['image']):
            what = (f'the image {value["image"]!r} is not a name below data_root: write it '
                    'relative to that folder, without ..')
        elif first.setdefault(value['image'], line) != line:
            what = f'the image {value["image"]!r} is already in line {first[value["image"]]}'
        else:
            rows.append(TableRow(**value, line=line))
            continue
        faults.append(Fault('table row', f'{path}:{line}', what))
    return rows, faults
