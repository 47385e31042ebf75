"""Words for the names of own folders that a file of word vectors has: Tshirts → t-shirt."""
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mmcluspro.datasets.names import readable_name
from mmcluspro.models.text.word_vectors import load_word_vectors


def words_for(names: Iterable[str], path: str | Path) -> dict[str, str]:
    """Names whose words have no vector, with words that have one.

    Args:
        names (Iterable[str]): Raw names of attributes and objects.
        path (str | Path): File of word vectors.

    Returns:
        dict[str, str]: The field ``readable`` of the text side; empty where every name is known.

    Raises:
        ValueError: Lists the names for which no word was found.
    """
    spelled = {name: [_spellings(word) for word in readable_name(name).split()] for name in names}
    known = load_word_vectors(path, {word for parts in spelled.values() for part in parts
                                     for word in part})
    found, lost = {}, []
    for name, parts in spelled.items():
        words = [next((word for word in part if word in known), '') for part in parts]
        kept = ' '.join(filter(None, words))
        if not kept:
            lost.append(name)
        elif kept != readable_name(name) and not all(part[0] in known for part in parts):
            found[name] = kept
    if lost:
        raise ValueError(
            f'{path} has no word for {len(lost)} names: {", ".join(lost[:10])}. Rename the folders '
            'or change the table to words that it has, or give a larger file with --words.')
    return found


def _spellings(word: str) -> list[str]:
    """A word, then its singular, then with a dash after its first letter: t-shirt."""
    ends = (('ies', 'y'), ('sses', 'ss'), ('shes', 'sh'), ('ches', 'ch'), ('xes', 'x'), ('s', ''))
    single = [word.removesuffix(end) + new for end, new in ends
              if word.endswith(end) and len(word) > len(end) + 1 and not word.endswith('ss')][:1]
    forms = [word, *single]
    return [*forms, *(f'{form[0]}-{form[1:]}' for form in forms if len(form) > 2)]
