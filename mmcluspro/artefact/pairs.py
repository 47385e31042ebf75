"""Lists of pairs to choose from: one parser for files, text boxes and Python."""
import re
from pathlib import Path

from mmcluspro.errors import Fault, raise_faults
from mmcluspro.utils.plain_files import read_text

Pair = tuple[str, str]
HEADER = ('attribute', 'object')
FORM = ('Write one pair per line: "attribute object", or "attribute, object" where a name has '
        'several words; each pair once. What follows a # is a comment. A name with such signs '
        'stands in double quotes.')
COMMENT = re.compile(r'(?:^|\s)#')
QUOTED = re.compile(r'(?:^|(?<=[,;\t])) *"[^"]*(?:""[^"]*)*"')  # a cell


def read_pairs(path: str | Path) -> list[Pair]:
    """Pairs of a text file, in its order; see :func:`parse_pairs`.

    Args:
        path (str | Path): The file, in UTF-8.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f'The file of pairs {path} does not exist.')
    return parse_pairs(read_text(path, 'Save it as UTF-8.'), f'{path}:')


def parse_pairs(text: str, where: str = 'line ', bare: bool = False) -> list[Pair]:
    """Pairs of a text, one per line.

    Lines are parsed one by one, so a mistake in one does not affect the others: ``wet cat``, or
        with names of several words ``wet, fire truck`` (comma, semicolon or tab). Names may be in
        double quotes, in which these signs and ``#`` mean nothing. Empty lines, comments after
        ``#`` and a first line ``attribute, object`` are skipped.

    Args:
        text (str): What the user wrote.
        where (str): Text before a line number in messages. Defaults to 'line '.
        bare (bool): Lines are pairs only: no comments and no header. Defaults to False.

    Raises:
        ValueError: Names the lines that are wrong.
    """
    found: dict[Pair, int] = {}
    faults: list[Fault] = []
    header = not bare
    for number, line in enumerate(re.split(r'\r\n|\r|\n', text), 1):
        comment = None if bare else COMMENT.search(masked(line))
        line = line[:comment.start() if comment else None].strip()
        if not line:
            continue
        try:
            pair = _pair(line)
        except ValueError as error:
            faults.append(Fault('pair line', f'{where}{number}', f'{error}, got {_short(line)}'))
            continue
        if header and not faults and (pair[0].lower(), pair[1].lower()) == HEADER:
            header = False
            continue
        header = False
        first = found.setdefault(pair, number)
        if first != number:
            faults.append(Fault('pair line', f'{where}{number}',
                                f'{_short(line)} is already in line {first}'))
    if not found and not faults:
        faults.append(Fault('pair line', f'{where}1', 'there is no pair'))
    raise_faults(faults, FORM)
    return list(found)


def masked(line: str) -> str:
    """A line of the same length in which cells in quotes hold no sign that means anything."""
    return QUOTED.sub(lambda cell: '_' * len(cell[0]), line)


def cells_of(line: str, sign: str) -> list[str]:
    """Names between commas or the like, without their quotes; other quotes stay.

    Raises:
        ValueError: A quote is not closed, or text follows it.
    """
    ends = [i for i, character in enumerate(masked(line)) if character == sign]
    cells = [line[start:end].strip() for start, end in zip([0, *(end + 1 for end in ends)],
                                                           [*ends, len(line)])]
    if any(cell.startswith('"') and not QUOTED.fullmatch(cell) for cell in cells):
        raise ValueError('a double quote is not closed, or text follows it')
    return [' '.join((cell[1:-1].replace('""', '"') if cell.startswith('"') else cell).split())
            for cell in cells]


def quoted(name: str) -> str:
    """A name as :func:`cells_of` and :func:`parse_pairs` read it back."""
    return '"' + name.replace('"', '""') + '"' if re.search(r'[,;\t"]|(?:^|\s)#', name) else name


def _pair(line: str) -> Pair:
    sign = next((sign for sign in '\t;,' if sign in masked(line)), None)
    cells = line.split() if sign is None else cells_of(line, sign)
    if len(cells) != 2:
        raise ValueError('expected two words' if sign is None else
                         f'expected two names with one {_SIGNS[sign]} between them')
    first, second = cells
    if not first or not second:
        raise ValueError('a name is empty')
    if not (first + second).isprintable():
        raise ValueError('a name holds a control character')
    return first, second


_SIGNS = {',': 'comma', ';': 'semicolon', '\t': 'tab'}


def _short(text: str, length: int = 60) -> str:
    return repr(text if len(text) <= length else text[:length] + '…')
