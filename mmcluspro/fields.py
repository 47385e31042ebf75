"""What a checkpoint may say about a class, declared in the annotations of its ``__init__``.

::

    class OwnHead(ThreePathHead):
        def __init__(self, *args, in_channels: Width, mode: Literal['sum', 'max'] = 'sum',
                     beta: Annotated[float, number(0, 1)] = 0.5, squared: bool = False,
                     dropout: Unsaved[float] = 0.1, **kwargs): ...

A *check* turns plain data into plain data within bounds, or refuses it; what comes out is built
anew, so an object of a file never passes through. ``bool``, ``Literal`` and unions of declared
types need no check of their own. :data:`Unsaved` fields are no part of a description: only
training needs them, or whoever builds the model gives them. ``**kwargs`` hands the fields of the
parent on. A field without a declaration is refused (docs/extending.md).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as hints_of

from mmcluspro.errors import shown

Check = Callable[[Any, str], Any]  # (value, name of the field) → the value, as plain data
MISSING: Any = object()
# What a user gives files for.
PLACES = ('backbone', 'text', 'projection', 'words', 'tokenizer')
T = TypeVar('T')


class Refusal(ValueError):
    """A value that is not declared; the message names the field."""


def flag(value: Any, where: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise Refusal(f'{where} must be True or False, got {shown(value)}')
    return value


def integer(low: int, high: int) -> Check:
    """A whole number within bounds, so that no file can ask for more memory than there is."""
    def check(value: Any, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise Refusal(f'{where} must be a whole number from {low} to {high}, '
                          f'got {shown(value)}')
        return int(value)
    return check


def number(low: float = -math.inf, high: float = math.inf) -> Check:
    """A finite number within bounds."""
    def check(value: Any, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not (
                low <= value <= high and math.isfinite(value)):
            bounds = f' from {low} to {high}' if math.isfinite(low) else ''
            raise Refusal(f'{where} must be a finite number{bounds}, got {shown(value)}')
        return value if isinstance(value, int) else float(value)
    return check


def choice(*allowed: Any) -> Check:
    """One of a few values."""
    def check(value: Any, where: str) -> Any:
        for known in allowed:
            if type(value) is type(known) and value == known:
                return known
        raise Refusal(f'{where} must be one of {", ".join(map(repr, allowed))}, '
                      f'got {shown(value)}')
    return check


def text(length: int = 1000) -> Check:
    """A string that is only ever shown, compared or given to a tokenizer."""
    def check(value: Any, where: str) -> str:
        if not isinstance(value, str) or len(value) > length:
            raise Refusal(f'{where} must be text of at most {length} characters, '
                          f'got {shown(value)}')
        return str(value)
    return check


def optional(check: Check) -> Check:
    """None, or what ``check`` takes."""
    return lambda value, where: None if value is None else check(value, where)


def either(first: Check, second: Check) -> Check:
    """Accepts what one of two fields accepts; the message is that of the second."""
    def check(value: Any, where: str) -> Any:
        try:
            return first(value, where)
        except Refusal:
            return second(value, where)
    return check


def items(check: Check, least: int = 0, most: int = 1000) -> Check:
    """A list or tuple; a list comes out."""
    def run(value: Any, where: str) -> list:
        if not isinstance(value, (list, tuple)) or not least <= len(value) <= most:
            raise Refusal(f'{where} must be a list of {least} to {most} entries, '
                          f'got {shown(value)}')
        return [check(entry, f'{where}[{place}]') for place, entry in enumerate(value)]
    return run


def mapping(key: Check, value: Check, most: int = 100_000) -> Check:
    """A dict with any keys of a type."""
    def run(table: Any, where: str) -> dict:
        if not isinstance(table, dict) or len(table) > most:
            raise Refusal(f'{where} must be a dict of at most {most} entries, got {shown(table)}')
        return {key(name, where): value(entry, f'{where}[{name!r}]')
                for name, entry in table.items()}
    return run


def record(**fields: Check) -> Check:
    """A dict with some of these keys and no others."""
    def run(table: Any, where: str) -> dict:
        if not isinstance(table, dict):
            raise Refusal(f'{where} must be a dict, got {shown(table)}')
        unknown = [name for name in table if name not in fields]
        if unknown:
            raise Refusal(f'{where} has the field {shown(unknown[0])}, which is not known; '
                          f'known are {", ".join(fields)}')
        return {name: check(table[name], f'{where}.{name}')
                for name, check in fields.items() if name in table}
    return run


def needs(value: dict, names: Sequence[str], where: str) -> None:
    """Refuses a record without one of its fields."""
    for name in names:
        if name not in value:
            raise Refusal(f'{where} lacks the field {name}')


class Left(NamedTuple):
    """A field that a description leaves out.

    Args:
        value (Any): What a model that only predicts is built with. Defaults to the class's own.
    """

    value: Any = MISSING


class Part(NamedTuple):
    """A field that holds one of our registered classes.

    Args:
        bases (tuple[type, ...]): It is one of these or derives from one.
        default (type, optional): The class where the field is None.
    """

    bases: tuple[type, ...]
    default: type | None = None


class Options(NamedTuple):
    """A field that holds the fields of a class, as a dict, or None.

    Args:
        owner (type): The class.
    """

    owner: type


class Source:
    """A field that names the weights of a frozen tower: from a closed list, never by a path."""

    def __call__(self, value: Any, where: str) -> str | None:
        """The check."""
        raise NotImplementedError

    def name(self, value: Any, part: Mapping[str, Any]) -> str | None:
        """Name in a description for what a config says.

        Args:
            value (Any): The field of the config, perhaps a path.
            part (Mapping): The other fields.
        """
        raise NotImplementedError

    def fit(self, part: Mapping[str, Any], where: str) -> None:
        """Refuses weights that the other fields do not go with."""


Unsaved = Annotated[T, Left()]
Width = Annotated[int, integer(1, 8192)]
Widths = Annotated[Sequence[int], items(integer(1, 8192), 0, 16)]


class Field(NamedTuple):
    """A field of a class.

    Attributes:
        kind (Check | Left | Part | Options | None): What it declares; None if nothing.
        default (Any): Its default, or ``MISSING``.
    """

    kind: Any
    default: Any


OTHERS: dict[type, dict[str, Any]] = {}  # declarations for classes of other packages


@lru_cache(maxsize=512)
def fields_of(owner: type) -> Mapping[str, Field]:
    """The fields of a class by name, with those that ``**kwargs`` hands on to its parents.

    Args:
        owner (type): A class; names in its attribute ``fixed`` are fields of a parent that it
            sets by itself.
    """
    found: dict[str, Field] = {}
    fixed: set[str] = set()
    for base in owner.__mro__:
        if '__init__' in base.__dict__:
            declared = _annotations(base)
            parameters = [*signature(base.__init__).parameters.values()][1:]  # type: ignore[misc]
            for entry in parameters:
                if entry.name in {*found, *fixed} or entry.kind in (
                        Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
                    continue
                default = MISSING if entry.default is Parameter.empty else entry.default
                found[entry.name] = Field(
                    _kind(declared.get(entry.name)),
                    list(default) if isinstance(default, tuple) else default)
            if not any(entry.kind is Parameter.VAR_KEYWORD for entry in parameters):
                break
        fixed.update(base.__dict__.get('fixed', ()))
    return found


def _annotations(base: type) -> Mapping[str, Any]:
    if base in OTHERS:
        return OTHERS[base]
    try:
        return hints_of(base.__init__, include_extras=True)  # type: ignore[misc]
    except NameError:  # imported for type checkers only: nothing is declared
        return {}


def _kind(annotation: Any) -> Any:
    if annotation is bool:
        return flag
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return annotation.__metadata__[-1]
    if origin is Literal:
        return choice(*arguments)
    if origin in (Union, UnionType):
        first, *others = [_kind(entry) for entry in arguments if entry is not NoneType]
        for other in others:
            first = first and other and either(first, other)
        return optional(first) if first and NoneType in arguments else first
    return None
