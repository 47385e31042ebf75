"""Types of the fields of a description. Each turns plain data into plain data, or refuses it.

What comes out is built anew from what was understood: an object of the file never passes through.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mmcluspro.errors import shown

Check = Callable[[Any, str], Any]  # (value, name of the field) → the value, as plain data
MISSING: Any = object()


class Refusal(ValueError):
    """A value that the schema does not know; the message names the field."""


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
