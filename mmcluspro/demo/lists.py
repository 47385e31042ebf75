"""Parses the text boxes of the page: lists of names and of pairs."""
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from mmcluspro.artefact.pairs import HEADER, Pair, cells_of, quoted
from mmcluspro.artefact.pairs import parse_pairs as read_lines

MAX_PAIRS = 50_000  # more would keep the page waiting for its text features
MAX_TEXT = 5_000_000  # characters of a box; more is not even divided into lines


def parse_names(text: str, what: str) -> list[str]:
    """Names of a text box, one per line or with commas between them, perhaps in double quotes.

    Args:
        text (str): What the user wrote.
        what (str): 'attribute' or 'object', for the messages.
    """
    names: list[str] = []
    for number, line in enumerate(_bounded(text).splitlines(), 1):
        try:
            names += filter(None, cells_of(line, ','))
        except ValueError as error:
            raise ValueError(f'In the list of {what}s, line {number}: {error}, got '
                             f'{_short(line)}.') from None
    if not names:
        raise ValueError(f'The list of {what}s is empty. Write at least one {what}.')
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f'In the list of {what}s, {_listed(twice)} occurs more than once. Leave '
                         'the repetition out.')
    return names


def parse_pairs(text: str, bare: bool = False) -> list[Pair]:
    """Pairs of a text box, as :func:`mmcluspro.artefact.pairs.parse_pairs` reads them."""
    pairs = read_lines(_bounded(text), bare=bare)
    if len(pairs) > MAX_PAIRS:
        raise ValueError(_too_many(len(pairs)))
    return pairs


def cross_pairs(attributes: Sequence[str], objects: Sequence[str]) -> list[Pair]:
    """All pairs of the names of two text boxes."""
    if len(attributes) * len(objects) > MAX_PAIRS:
        raise ValueError(_too_many(len(attributes) * len(objects)))
    return [(attribute, obj) for attribute in attributes for obj in objects]


def name_text(names: Iterable[str]) -> str:
    """Text that :func:`parse_names` reads as these names."""
    return '\n'.join(map(quoted, names))


def pair_text(pairs: Iterable[Pair]) -> str:
    """Text that :func:`parse_pairs` reads as these pairs."""
    found = list(pairs)
    header = [HEADER] if found and tuple(map(str.lower, found[0])) == HEADER else []
    return '\n'.join(
        (', ' if re.search(r'[\s"]', ''.join(words)) else ' ').join(words)
        for words in (tuple(map(quoted, pair)) for pair in header + found))


def _bounded(text: str | None) -> str:
    if text is not None and len(text) > MAX_TEXT:
        raise ValueError(f'The list has {len(text):,} characters; the page takes up to '
                         f'{MAX_TEXT:,}. Shorten it.')
    return text or ''


def _too_many(count: int) -> str:
    return f'These are {count:,} pairs; the page takes up to {MAX_PAIRS:,}. Shorten the lists.'


def _short(text: str, length: int = 60) -> str:
    return f'"{text if len(text) <= length else text[:length] + "…"}"'


def _listed(names: Sequence[str]) -> str:
    return ', '.join(_short(name) for name in names[:3])
