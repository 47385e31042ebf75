"""The text boxes of the page: lists of names and of pairs, with errors in words."""
from collections import Counter
from collections.abc import Iterable, Sequence

Pair = tuple[str, str]
MAX_PAIRS = 50_000  # more would keep the page waiting for its text features


def parse_names(text: str, what: str) -> list[str]:
    """Names of a text box, one a line or with commas between them.

    Args:
        text (str): What the user wrote.
        what (str): 'attribute' or 'object', for the messages.
    """
    names = [name for line in text.splitlines() for part in line.split(',')
             if (name := ' '.join(part.split()))]
    if not names:
        raise ValueError(f'The list of {what}s is empty. Write at least one {what}.')
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f'In the list of {what}s, {_listed(twice)} stands more than once. Leave '
                         'the repetition out.')
    return names


def parse_pairs(text: str) -> list[Pair]:
    """Pairs of a text box: ``attribute object`` a line, or ``attribute, object``."""
    pairs: dict[Pair, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        parts = [' '.join(part.split()) for part in line.split(',')] if ',' in line else (
            line.split())
        if len(parts) != 2 or not all(parts):
            raise ValueError(
                f'Line {number} of the pairs, {_short(line.strip())}, is not one pair. Write one '
                'pair a line, "attribute object", with a comma between the two where a name has '
                'several words.')
        pair = (parts[0], parts[1])
        if pair in pairs:
            raise ValueError(f'Lines {pairs[pair]} and {number} of the pairs are the same, '
                             f'{_short(" ".join(pair))}. Leave one of them out.')
        pairs[pair] = number
    if not pairs:
        raise ValueError('The list of pairs is empty. Write at least one, such as "wet cat".')
    if len(pairs) > MAX_PAIRS:
        raise ValueError(_too_many(len(pairs)))
    return list(pairs)


def cross_pairs(attributes: Sequence[str], objects: Sequence[str]) -> list[Pair]:
    """All pairs of the names of two text boxes."""
    if len(attributes) * len(objects) > MAX_PAIRS:
        raise ValueError(_too_many(len(attributes) * len(objects)))
    return [(attribute, obj) for attribute in attributes for obj in objects]


def pair_text(pairs: Iterable[Pair]) -> str:
    """What :func:`parse_pairs` reads as these pairs."""
    return '\n'.join(
        (', ' if any(' ' in name for name in pair) else ' ').join(pair) for pair in pairs)


def _too_many(count: int) -> str:
    return f'These are {count:,} pairs; the page takes up to {MAX_PAIRS:,}. Shorten the lists.'


def _short(text: str, length: int = 60) -> str:
    return f'"{text if len(text) <= length else text[:length] + "…"}"'


def _listed(names: Sequence[str]) -> str:
    return ', '.join(_short(name) for name in names[:3])
