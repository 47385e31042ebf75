"""Errors of readers, which name the file, the place, the problem and what to do."""
from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# Control characters (escape sequences among them), and those that turn the direction of text.
STEERING = re.compile('[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]')


class FileError(ValueError):
    """A file that is damaged, of another kind, or refused.

    Args:
        file (str | Path): The file, or what the user calls it.
        problem (str): What is wrong, without a full stop.
        remedy (str): What the user can do, a sentence.
        place (str, optional): Where in the file: a line, a row, a field. Defaults to None.
    """

    def __init__(self, file: str | Path, problem: str, remedy: str,
                 place: str | None = None) -> None:
        self.file, self.problem, self.remedy, self.place = str(file), problem, remedy, place
        where = f'{file}, {place}' if place else str(file)
        super().__init__(f'{where}: {problem}. {remedy}')

    def __reduce__(self) -> tuple:  # errors travel from dataloader workers
        return type(self), (self.file, self.problem, self.remedy, self.place)


class DownloadError(RuntimeError):
    """Weights that are not on this machine could not be downloaded."""


def reason_of(error: BaseException, length: int = 160) -> str:
    """The first line of an error of another package, short, with its kind where it says little."""
    text = (str(error).strip().splitlines() or [''])[0]
    text = (text if len(text) <= length else text[:length].rstrip() + '…').rstrip('. ')
    if isinstance(error, (KeyError, IndexError)) or len(text) < 12:
        return f'{type(error).__name__} {text}'.strip()
    return text


def sentence_of(error: BaseException) -> str:
    """The message of an error of ours, for use inside another one: without its full stop."""
    return str(error).strip().removesuffix('.')


class Fault(NamedTuple):
    """One thing that is wrong in the data.

    Attributes:
        kind (str): Short name of the sort of fault, for counting.
        where (str): File with line or row, such as ``train_pairs.txt:3``.
        what (str): What is wrong there.
    """
    kind: str
    where: str
    what: str

    def __str__(self) -> str:
        return printable(f'{self.where}: {self.what}')


def describe(faults: Sequence[Fault], limit: int = 5) -> str:
    """The first problems, one per line, and the number of the others."""
    lines = [f'  {fault}' for fault in faults[:limit]]
    if len(faults) > limit:
        lines.append(f'  … and {len(faults) - limit} more')
    return '\n'.join(lines)


def describe_kinds(faults: Sequence[Fault], limit: int = 5) -> list[str]:
    """For each kind of problem, its number and the first ones, each on its own line."""
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.kind, []).append(fault)
    return [f'{len(found)} x {kind}:\n{describe(found, limit)}' for kind, found in kinds.items()]


class FaultsError(FileError):
    """All problems in the data, in one message.

    Args:
        faults (Sequence[Fault]): What was found.
        advice (str): What to do about it.
        limit (int): Faults shown in full.
    """

    def __init__(self, faults: Sequence[Fault], advice: str, limit: int) -> None:
        number = f'{len(faults)} problem' + ('s' if len(faults) > 1 else '')
        super().__init__(faults[0].where, faults[0].what, advice)
        self.faults, self.limit = tuple(faults), limit
        self.args = (f'{number} in the data:\n{describe(faults, limit)}'
                     + (f'\n{advice}' if advice else ''), )

    def __reduce__(self) -> tuple:
        return type(self), (self.faults, self.remedy, self.limit)


def raise_faults(faults: Sequence[Fault], advice: str = '', limit: int = 5) -> None:
    """Raises one :class:`FaultsError` about all faults; returns when there are none.

    Args:
        faults (Sequence[Fault]): What was found.
        advice (str): What to do about it, with the config field. Defaults to ''.
        limit (int): Faults shown in full. Defaults to 5.
    """
    if faults:
        raise FaultsError(faults, advice, limit)


def listed(names: Sequence[str], most: int = 5, sign: str = ', ') -> str:
    """The first names, and the number of the others."""
    more = f' and {len(names) - most} more' if len(names) > most else ''
    return sign.join(names[:most]) + more


class _Short(reprlib.Repr):
    """Looks at a few entries of a few levels: lists in a file can hold each other many times."""

    def repr_instance(self, x: object, level: int) -> str:
        return repr(x) if type(x) in (bool, float, type(None), type) else f'<{type(x).__name__}>'


def shown(value: object, length: int = 80) -> str:
    """A value of a file in a message: short, and found in no time whatever the value is."""
    writer = _Short()
    writer.maxlevel, writer.maxstring, writer.maxlong, writer.maxother = 3, length, length, length
    try:
        written = writer.repr(value)
    except ValueError:  # a number of more digits than Python writes
        written = f'<{type(value).__name__}>'
    return written if len(written) <= length else written[:length] + '…'


def printable(text: object, keep: str = '') -> str:
    r"""Text of a file, or its name, for a terminal: control characters are written as ``\x1b``.

    Args:
        text (object): What is to be printed.
        keep (str): Characters that stay, such as the line breaks of a message. Defaults to ''.

    Examples:
        >>> printable('red\x1b[2J.jpg')
        'red\\x1b[2J.jpg'
    """
    return STEERING.sub(lambda sign: sign[0] if sign[0] in keep else ascii(sign[0])[1:-1],
                        str(text))


def between(field: str, value: float, low: float, high: float, open_end: bool = False) -> None:
    """Refuses a number outside of [low, high], or of [low, high) with ``open_end``.

    Args:
        field (str): Field of the config, for the message.
        value (float): What was given.
        low (float): Least value.
        high (float): Largest value, or the first one that is too large.
        open_end (bool): Whether ``high`` itself is refused. Defaults to False.
    """
    if not low <= value <= high or (open_end and value == high):
        raise ValueError(f'{field} must lie in [{low:g}, {high:g}{")" if open_end else "]"}, '
                         f'got {value}.')


def at_least(field: str, value: float, low: float) -> None:
    """Refuses a number below ``low``."""
    if not value >= low:
        raise ValueError(f'{field} must be at least {low}, got {value}.')


def one_of(field: str, value: object, allowed: Sequence[object]) -> None:
    """Refuses a value that is not among those allowed."""
    if value not in allowed:
        raise ValueError(f'{field} must be one of {tuple(allowed)}, got {value!r}.')
