"""Raw names identify a primitive; readable names are what a prompt says."""
import difflib
import importlib
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from mmcluspro.errors import listed

Readable = Callable[[str], str]


def label(name: str) -> str:
    """The one form (Unicode NFC) of a name that data or a user give.

    macOS and some archives write "é" as two characters, others as one; both look the same.
    """
    return unicodedata.normalize('NFC', name)


def labels(names: Iterable[str], where: str | Path) -> dict[str, str]:
    """:func:`label` of each name of a file or folder; warns where two of them become one."""
    forms = {name: label(name) for name in names}
    twice = sorted(form for form, count in Counter(forms.values()).items() if count > 1)
    if twice:
        warnings.warn(f'{where}: names in two Unicode forms, which look the same, count as one: '
                      f'{listed(twice)}.', stacklevel=3)
    return forms


def singulars(word: str) -> list[str]:
    """What the singular of an English word may be, the likeliest first; [] for none.

    Examples:
        >>> singulars('cherries'), singulars('boxes'), singulars('dress')
        (['cherry', 'cherrie'], ['box', 'boxe'], [])
    """
    if len(word) < 4 or not word.endswith('s') or word.endswith('ss'):
        return []
    ends = {'ies': 'y', 'ves': 'f', 'sses': 'ss', 'shes': 'sh', 'ches': 'ch', 'xes': 'x',
            'zes': 'z', 'oes': 'o'}
    other = [word.removesuffix(end) + new for end, new in ends.items()
             if word.endswith(end) and len(word) > len(end) + 1]
    return [*other, word[:-1]]


def alike(images: Mapping[str, int]) -> dict[str, str]:
    """Names that look like one name in several spellings, with the one that most images have.

    Upper case, separators ("Mid-Calf", "mid calf") and a plural at the end do not count.

    Args:
        images (Mapping[str, int]): Raw names of attributes, or of objects, with their images.

    Returns:
        dict[str, str]: Names to replace, in order, and what by.
    """
    kept: dict[str, str] = {}  # of each spelling
    found = {}
    for name in sorted(images, key=lambda name: (-images[name], name != name.lower(), name)):
        first, last = readable_name(name).rpartition(' ')[::2]
        keys = [f'{first} {word}' for word in (last, *singulars(last))]
        same = next((kept[key] for key in keys if key in kept), name)
        for key in keys:
            kept.setdefault(key, same)
        if same != name:
            found[name] = same
    return dict(sorted(found.items()))


def readable_name(name: str) -> str:
    """The words of a raw name: dots, underscores and dashes become spaces, lower case.

    A name without any word ("-") is returned as it is.

    Examples:
        >>> readable_name('Faux.Fur'), readable_name('Boots.Mid-Calf')
        ('faux fur', 'boots mid calf')
    """
    return ' '.join(re.sub(r'[._\-]+', ' ', label(name)).lower().split()) or name


def dotted_name(name: str) -> str:
    """The name rule of the published code (CSP, Troika, ClusPro): dots become spaces, lower case.

    Among the names of MIT-States, UT-Zappos and C-GQA it differs from
    :func:`readable_name` in one, ``Boots.Mid-Calf``.

    Examples:
        >>> dotted_name('Faux.Fur'), dotted_name('Boots.Mid-Calf')
        ('faux fur', 'boots mid-calf')
    """
    return ' '.join(label(name).replace('.', ' ').lower().split()) or name


# Words of the published loaders of word vectors (ExplainableML/czsl, models/word_embedding.py), for
# names of UT-Zappos, in lower case, that no file has.
VECTOR_WORDS = {
    'faux.fur': 'fake fur', 'faux.leather': 'fake leather', 'full.grain.leather': 'thick leather',
    'hair.calf': 'hair leather', 'patent.leather': 'shiny leather', 'boots.ankle': 'ankle boots',
    'boots.knee.high': 'knee high boots', 'boots.mid-calf': 'midcalf boots',
    'shoes.boat.shoes': 'boat shoes', 'shoes.clogs.and.mules': 'clogs shoes',
    'shoes.flats': 'flats shoes', 'shoes.heels': 'heels', 'shoes.loafers': 'loafers',
    'shoes.oxfords': 'oxford shoes', 'shoes.sneakers.and.athletic.shoes': 'sneakers'}


def word2vec_name(name: str) -> str:
    """The words that the published code looks up in word2vec; capitals stay.

    Names of UT-Zappos have a table; others are read as by :func:`readable_name`.

    Examples:
        >>> word2vec_name('Shoes.Oxfords'), word2vec_name('Canvas')
        ('oxford shoes', 'Canvas')
    """
    raw = label(name)
    return VECTOR_WORDS.get(raw.lower()) or ' '.join(re.sub(r'[._\-]+', ' ', raw).split()) or name


def glove_name(name: str) -> str:
    """As :func:`word2vec_name` for GloVe, which has lower case only and no nubuck.

    Examples:
        >>> glove_name('Nubuck'), glove_name('Canvas')
        ('grainy leather', 'canvas')
    """
    words = word2vec_name(name).lower()
    return 'grainy leather' if words == 'nubuck' else words


RULES: dict[str, Readable] = {'words': readable_name, 'dots': dotted_name,
                              'word2vec': word2vec_name, 'glove': glove_name}


def resolve_readable(readable: Mapping[str, str] | Readable | str | None = None,
                     names: Iterable[str] | None = None) -> Readable:
    """Turns the config field ``readable`` into one function from raw to readable names.

    Args:
        readable (dict | callable | str, optional): 'words' is :func:`readable_name`, 'dots' is
            :func:`dotted_name`, 'word2vec' :func:`word2vec_name`, 'glove' :func:`glove_name`. A
            dict ``raw name -> words`` overrides single names of :func:`readable_name`. A function,
            or its path ``'package.module.function'``, converts all names. Defaults to None:
            'words'.
        names (Iterable[str], optional): All raw names in use. If given, other keys in the dict are
            an error, so that typing errors are noticed. Defaults to None.

    Returns:
        Callable[[str], str]: Maps a raw name to its words.

    Examples:
        >>> words = resolve_readable({'Hair.Calf': 'calf hair'})
        >>> words('Hair.Calf'), words('Faux.Fur')
        ('calf hair', 'faux fur')
    """
    if readable is None:
        return readable_name
    if isinstance(readable, str):
        return RULES[readable] if readable in RULES else _import_function(readable)
    if callable(readable):
        return readable
    if not isinstance(readable, Mapping):
        raise ValueError(
            f"readable must be one of {', '.join(map(repr, RULES))}, a dict of raw name -> words, "
            f'a function or the dotted path of one, got {readable!r}.')
    overrides = dict(readable)
    if names is not None:
        _check_keys(overrides, sorted(set(names)))
    return Overrides(overrides)


class Overrides:
    """:func:`readable_name` with exceptions (a class, so that it pickles)."""

    def __init__(self, overrides: dict[str, str]) -> None:
        self.overrides = overrides

    def __call__(self, name: str) -> str:
        return self.overrides.get(name) or readable_name(name)


def _check_keys(overrides: Mapping[str, str], names: list[str]) -> None:
    known = set(names)
    unknown = [name for name in overrides if name not in known]
    if unknown:
        close = difflib.get_close_matches(unknown[0], names, n=1)
        raise ValueError(
            f'readable overrides {unknown[0]!r}, which is not an attribute or object of the space'
            + (f'; did you mean {close[0]!r}?' if close else '.')
            + (f' ({len(unknown) - 1} more such keys)' if len(unknown) > 1 else ''))


def _import_function(path: str) -> Readable:
    module, _, function = path.rpartition('.')
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"readable={path!r} cannot be imported ({error}); write 'package.module.function', or "
            f"one of {', '.join(map(repr, RULES))}."
        ) from error
    if not callable(found):
        raise ValueError(f'readable={path!r} is a {type(found).__name__}, not a function.')
    return found


MAX_NAME = 1000  # characters; the time of CLIP's tokenizer grows with the square of a word


def check_lengths(what: str, names: Iterable[str]) -> None:
    """Refuses names that would keep a tokenizer busy for minutes."""
    longest = max(names, key=len, default='')
    if len(longest) > MAX_NAME:
        raise ValueError(f'{what} must have at most {MAX_NAME:,} characters; {longest[:40]!r}… has '
                         f'{len(longest):,}.')


def sort_names(what: str, names: Sequence[str], labels: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """Sorts names and renumbers labels, indices into them, accordingly."""
    wrong = [name for name in names if not isinstance(name, str) or not name]
    if wrong or isinstance(names, str) or len(set(names)) != len(names) or not len(names):
        double = [] if wrong else [name for name, count in Counter(names).items() if count > 1][:3]
        raise ValueError(f'{what} must be distinct, non-empty names, at least one; got '
                         f'{len(names)} of them' + (f', more than once: {double}' if double else '')
                         + (f', no names: {wrong[:3]}' if wrong else ''))
    check_lengths(what, names)
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = torch.empty(len(names), dtype=torch.long, device='cpu')
    rank[order] = torch.arange(len(names), device='cpu')
    return tuple(names[i] for i in order), rank[labels]


def name_indices(pairs: Sequence[Sequence[str]], attributes: Sequence[str],
                 objects: Sequence[str]) -> Tensor:
    """Pairs of names as pairs of indices, shape (P, 2)."""
    attr_index = {name: i for i, name in enumerate(attributes)}
    obj_index = {name: i for i, name in enumerate(objects)}
    unknown = [pair for pair in pairs if pair[0] not in attr_index or pair[1] not in obj_index]
    if unknown:
        raise ValueError(
            f'{len(unknown)} pairs name an attribute or object that is not given, first '
            f'{tuple(unknown[0])}.')
    return torch.tensor([[attr_index[a], obj_index[o]] for a, o in pairs]).reshape(-1, 2)
