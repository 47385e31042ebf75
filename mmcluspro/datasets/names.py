"""Raw names identify a primitive; readable names are what a prompt says."""
import difflib
import importlib
import re
from collections.abc import Callable, Iterable, Mapping

Readable = Callable[[str], str]


def readable_name(name: str) -> str:
    """The words of a raw name: dots, underscores and dashes become spaces, lower case.

    A name without any word ("-") is returned as it is.

    Examples:
        >>> readable_name('Faux.Fur'), readable_name('Boots.Mid-Calf')
        ('faux fur', 'boots mid calf')
    """
    return ' '.join(re.sub(r'[._\-]+', ' ', name).lower().split()) or name


def dotted_name(name: str) -> str:
    """The name rule of the published code (CSP, Troika, ClusPro): dots become spaces, lower case.

    Among the names of MIT-States, UT-Zappos and C-GQA it differs from
    :func:`readable_name` in one, ``Boots.Mid-Calf``.

    Examples:
        >>> dotted_name('Faux.Fur'), dotted_name('Boots.Mid-Calf')
        ('faux fur', 'boots mid-calf')
    """
    return ' '.join(name.replace('.', ' ').lower().split()) or name


RULES: dict[str, Readable] = {'words': readable_name, 'dots': dotted_name}


def resolve_readable(readable: Mapping[str, str] | Readable | str | None = None,
                     names: Iterable[str] | None = None) -> Readable:
    """Turns the config field ``readable`` into one function from raw to readable names.

    Args:
        readable (dict | callable | str, optional): 'words' is :func:`readable_name`, 'dots' is
            :func:`dotted_name`. A dict ``raw name -> words`` overrides single names of
            :func:`readable_name`. A function, or its path ``'package.module.function'``, converts
            all names. Defaults to None: 'words'.
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
