"""Reads a list of pairs to choose from."""
import csv
from pathlib import Path

from mmcluspro.datasets.faults import raise_faults
from mmcluspro.datasets.splits import read_pair_list


def read_pairs(path: str | Path) -> list[tuple[str, str]]:
    """Pairs of a text file, in its order.

    One ``attribute object`` a line, as in the published lists; with names of several words
    ``attribute,object`` (comma, semicolon or tab). A first line ``attribute,object`` is a header.

    Args:
        path (str | Path): The file, in UTF-8.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f'No list of pairs at {path}.')
    try:
        lines = [line for line in path.read_text(encoding='utf-8-sig').splitlines()
                 if line.strip()]
    except UnicodeDecodeError as error:
        raise ValueError(f'{path} is not UTF-8 text ({error}).') from error
    delimiter = next((sign for sign in ',;\t' if lines and sign in lines[0]), None)
    if delimiter is None:
        pairs, faults = read_pair_list(path)
        raise_faults(faults, 'A list of pairs has "attribute object", or for names of several '
                     'words "attribute,object", in each line, and each pair once.')
        return list(pairs)
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=delimiter)]
    if [cell.lower() for cell in rows[0]] == ['attribute', 'object']:
        rows = rows[1:]
    for number, row in enumerate(rows, 1):
        if len(row) != 2 or not all(row):
            raise ValueError(f'{path}, pair {number}: two names "attribute{delimiter}object" '
                             f'expected, got {delimiter.join(row)!r}.')
    return [(row[0], row[1]) for row in rows]
