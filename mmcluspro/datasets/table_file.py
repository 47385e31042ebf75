"""Own data as a CSV file: ``image,attribute,object,split``."""
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from mmcluspro.errors import Fault, FileError, raise_faults
from mmcluspro.utils.files import leaves, write_text
from mmcluspro.utils.plain_files import CsvTable, csv_text, once_per_file, read_csv, unguard

from .layout import PHASES, PairLines, check_primitives
from .names import labels

COLUMNS = ('image', 'attribute', 'object', 'split')
SUFFIXES = ('.csv', '.tsv')
LAYOUT = f'A table has one image per line under the header {",".join(COLUMNS)}.'
SAVE_AS = ('Save it as "CSV UTF-8"; inside quotes write "" for a quote, and leave stray quotes '
           'out.')
MAKE_ONE = ("set make_split=dict(seed=0) in the config, or write one into a file that you can look "
            'at with tools/dataset_converters/make_split.py')


class TableRow(NamedTuple):
    """One image. ``line`` is its place in the file (the header is line 1)."""
    image: str
    attribute: str
    object: str
    split: str = ''
    line: int = 0


class Columns(NamedTuple):
    """What the columns of a table are called; upper case does not count."""
    image: str = 'image'
    attribute: str = 'attribute'
    object: str = 'object'
    split: str = 'split'


NAMED = Columns()


@once_per_file(kept=2)
def read_table(path: str | Path, need_split: bool = True, columns: Columns = NAMED,
               root: str | Path | None = None) -> list[TableRow]:
    """Reads a table with a header; columns in any order, others are ignored.

    Comma, semicolon or tab divide the columns (whichever makes the header's
    names); UTF-8, with or without byte-order mark.

    Args:
        path (str | Path): The file.
        need_split (bool): Whether the column ``split`` must be there. Defaults
            to True.
        columns (Columns): Names of the columns. Defaults to those of this package.
        root (str | Path, optional): Folder of the images: absolute paths become names below it.
            Defaults to None: all names are relative.
    """
    path = Path(path).expanduser()
    columns = Columns(*(name.strip().lower() for name in columns))
    if not path.is_file():
        raise FileNotFoundError(
            f'No table at {path}. Set the config field table to a CSV file with the header '
            f'{",".join(COLUMNS)}, or to None for a tree of folders attribute_object/.')
    table = read_csv(path, columns, SAVE_AS)
    _check_header(table, need_split, columns)
    rows, faults = _rows(table, columns, root)
    raise_faults(faults, LAYOUT)
    if not rows:
        raise FileError(path, 'it has a header, but no image', LAYOUT)
    return one_form(rows, path)


def table_root(path: str | Path, columns: Columns = NAMED) -> Path:
    """Folder of a table, or the one that absolute paths in it have in common."""
    path = Path(path).expanduser()
    wanted = columns.image.strip().lower()
    table = read_csv(path, columns, SAVE_AS)
    place = table.names.index(wanted) if wanted in table.names else None
    names = [row[place].strip() for _, row in table.rows if place is not None and place < len(row)]
    folders = {os.path.dirname(name) for name in names if os.path.isabs(name)}
    own = os.path.abspath(path.parent)
    if all(os.path.commonpath([own, folder]) == own for folder in folders):
        return path.parent
    relative = any(not os.path.isabs(name) for name in names)
    return Path(os.path.commonpath([*folders, *([own] if relative else [])]))


def one_form(rows: Sequence[TableRow], where: str | Path) -> list[TableRow]:
    """The rows with attributes and objects in one Unicode form; names of images stay."""
    forms = labels((name for row in rows for name in row[1:3]), where)
    return [row._replace(attribute=forms[row.attribute], object=forms[row.object]) for row in rows]


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
    """Writes the columns, the same bytes on every machine."""
    write_text(Path(path).expanduser(), table_text(rows))


def table_text(rows: Sequence[TableRow]) -> str:
    """The text that :func:`write_table` writes; without the column split if it is empty."""
    width = 4 if any(row.split for row in rows) else 3
    return csv_text([COLUMNS[:width], *(row[:width] for row in rows)])


def _check_header(table: CsvTable, need_split: bool, columns: Columns) -> None:
    where, found = f'{table.path}:1', table.names
    needed = columns if need_split else columns[:3]
    missing = [name for name in needed if name not in found]
    if missing == [columns.split]:
        raise FileError(where, f'the table has no column split; {MAKE_ONE}', LAYOUT)
    if missing:
        raise FileError(where, f'the header must name {",".join(columns)}; {",".join(missing)} is '
                        f'missing from {table.header[:200]!r}',
                        'Write the header as the first line, or give mmcluspro train, check-data '
                        'or make-split the names, for example --columns image=file object=item.')
    if len(set(found)) < len(found):
        raise FileError(where, f'a column is twice in the header {table.header[:200]!r}',
                        'Remove one of them.')


def _rows(table: CsvTable, columns: Columns,
          root: str | Path | None) -> tuple[list[TableRow], list[Fault]]:
    names = table.names
    place = {name: names.index(theirs) for name, theirs in columns._asdict().items()
             if theirs in names}
    rows, faults, first = [], [], dict[str, int]()
    for line, row in table.rows:
        value = {name: unguard(row[i].strip()) if i < len(row) else ''
                 for name, i in place.items()}
        if root is not None and os.path.isabs(value['image']):
            value['image'] = os.path.relpath(value['image'], Path(root).expanduser())
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
        faults.append(Fault('table row', f'{table.path}:{line}', what))
    return rows, faults
