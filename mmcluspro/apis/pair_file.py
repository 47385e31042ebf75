"""Lists of pairs to choose from: one parser for files, text boxes and Python."""
import csv
import re
from pathlib import Path

from mmcluspro.errors import Fault, raise_faults
from mmcluspro.utils.plain_files import read_text

Pair = tuple[str, str]
HEADER = ('attribute', 'object')
FORM = ('Write one pair per line: "attribute object", or "attribute, object" where a name has '
        'several words; each pair once. What follows a # is a comment.')


def read_pairs(path: str | Path) -> list[Pair]:
    """Pairs of a text file, in its order; see :func:`parse_pairs`.

    Args:
        path (str | Path): The file, in UTF-8.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f'The file of pairs {path} does not exist.')
    return parse_pairs(read_text(path, 'Save it as UTF-8.'), f'{path}:')


def parse_pairs(text: str, where: str = 'line ') -> list[Pair]:
    """Pairs of a text, one per line.

    Lines are parsed one by one, so a mistake in one does not affect the others: ``wet cat``, or
        with names of several words ``wet, fire truck`` (comma, semicolon or tab). Names may be in
        double quotes. Empty lines, comments after ``#`` and a first line ``attribute, object`` are
        skipped.

    Args:
        text (str): What the user wrote.
        where (str): Text before a line number in messages. Defaults to 'line '.

    Raises:
        ValueError: Names the lines that are wrong.
    """
    found: dict[Pair, int] = {}
    faults: list[Fault] = []
    for number, line in enumerate(re.split(r'\r\n|\r|\n', text), 1):
        line = re.split(r'(?:^|\s)#', line, maxsplit=1)[0].strip()
        if not line:
            continue
        try:
            pair = _pair(line)
        except ValueError as error:
            faults.append(Fault('pair line', f'{where}{number}', f'{error}, got {_short(line)}'))
            continue
        if not found and not faults and (pair[0].lower(), pair[1].lower()) == HEADER:
            continue
        first = found.setdefault(pair, number)
        if first != number:
            faults.append(Fault('pair line', f'{where}{number}',
                                f'{_short(line)} is already in line {first}'))
    if not found and not faults:
        faults.append(Fault('pair line', f'{where}1', 'there is no pair'))
    raise_faults(faults, FORM)
    return list(found)


def _pair(line: str) -> Pair:
    sign = next((sign for sign in '\t;,' if sign in line), None)
    if sign is None:
        cells = line.split()
        if len(cells) != 2:
            raise ValueError('expected two words')
    else:
        line = re.sub(rf'"\s+(?={sign})', '"', line)
        try:
            (cells, ) = csv.reader([line], delimiter=sign, skipinitialspace=True, strict=True)
        except csv.Error:
            raise ValueError('a double quote is not closed, or text follows it') from None
        if len(cells) != 2:
            raise ValueError(f'expected two names with one {_SIGNS[sign]} between them')
    first, second = (' '.join(cell.split()) for cell in cells)
    if not first or not second:
        raise ValueError('a name is empty')
    if not (first + second).isprintable():
        raise ValueError('a name holds a control character')
    return first, second


_SIGNS = {',': 'comma', ';': 'semicolon', '\t': 'tab'}


def _short(text: str, length: int = 60) -> str:
    return repr(text if len(text) <= length else text[:length] + '…')
