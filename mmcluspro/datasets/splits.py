"""Pair lists of the published layout: ``<root>/<split>/{train,val,test}_pairs.txt``."""
import warnings
from collections.abc import Mapping
from pathlib import Path

from mmcluspro.errors import Fault, FileError, raise_faults
from mmcluspro.utils.plain_files import once_per_file, read_text

from .names import label

PHASES = ('train', 'val', 'test')
DEFAULT_SPLIT = 'compositional-split-natural'
LARGEST = 1 << 28  # bytes of a list

Pair = tuple[str, str]
# Line number (from 1) of each pair of a list, in file order.
PairLines = dict[Pair, int]


def pair_file(root: str | Path, split: str, phase: str) -> Path:
    return Path(root).expanduser() / split / f'{phase}_pairs.txt'


def missing_file(path: Path, what: str) -> FileNotFoundError:
    """An error that says what was looked for and what there is instead."""
    parent = path.parent
    while not parent.is_dir() and parent != parent.parent:
        parent = parent.parent
    beside = sorted(entry.name + '/' * entry.is_dir() for entry in parent.iterdir())
    listing = ', '.join(beside[:12]) + (f', … ({len(beside)} in all)' if len(beside) > 12 else '')
    return FileNotFoundError(
        f'No {what} at {path}. The folder {parent} holds: {listing or "nothing"}. '
        'Set the config field data_root to the folder that holds images/ and the split folder, '
        f'and split to the name of the latter (by default {DEFAULT_SPLIT!r}).')


@once_per_file(kept=6)
def read_pair_list(path: Path, separator: str | None = None) -> tuple[PairLines, list[Fault]]:
    """Reads "attribute object" lines; empty ones, a byte-order mark and CRLF are fine.

    Args:
        path (Path): The list.
        separator (str, optional): Separator between the names, which may then contain spaces.
            Defaults to None, white space.
    """
    if not path.is_file():
        raise missing_file(path, 'pair list')
    pairs: PairLines = {}
    faults = []
    try:
        text = read_text(path, '', LARGEST)
    except FileError as error:
        return {}, [Fault('pair line', str(path), error.problem)]
    for number, line in enumerate(text.split('\n'), start=1):
        words = [label(word.strip()) for word in line.split(separator)] if line.strip() else []
        where = f'{path}:{number}'
        if len(words) == 2 and all(words):
            first = pairs.setdefault((words[0], words[1]), number)
            if first != number:
                faults.append(
                    Fault('pair line', where, f'{line.strip()!r} is already in line {first}'))
        elif words:
            faults.append(
                Fault('pair line', where,
                      f'expected two words "attribute object", got {line.strip()!r}'
                      if separator is None else
                      f'expected "attribute{separator}object", got {line.strip()!r}'))
    if not pairs and not faults:
        faults.append(Fault('pair line', str(path), 'holds no pair'))
    return pairs, faults


def unknown_primitives(lists: Mapping[str, Mapping[Pair, int]],
                       files: Mapping[str, str | Path]) -> list[Fault]:
    """Validation and test pairs with an attribute or object of no training pair."""
    attributes = {attr for attr, _ in lists['train']}
    objects = {obj for _, obj in lists['train']}
    faults = []
    for phase in PHASES[1:]:
        for (attr, obj), number in lists[phase].items():
            unknown = [f'attribute {attr!r}'] * (attr not in attributes)
            unknown += [f'object {obj!r}'] * (obj not in objects)
            if unknown:
                faults.append(
                    Fault('unknown primitive', f'{files[phase]}:{number}',
                          f'{" and ".join(unknown)} in no training pair'))
    return faults


def check_primitives(lists: Mapping[str, Mapping[Pair, int]], files: Mapping[str, str | Path],
                     allow_unknown: bool = False) -> None:
    """Raises about :func:`unknown_primitives`, or warns when they are allowed."""
    unknown = unknown_primitives(lists, files)
    if unknown and allow_unknown:
        warnings.warn(
            f'{len(unknown)} pairs have an attribute or object that no training pair has, '
            f'first {unknown[0]}.', stacklevel=2)
        return
    raise_faults(
        unknown, 'A primitive without any training pair cannot be learned; correct the data, '
        'or set allow_unknown=True to continue with a warning.')


def read_splits(root: str | Path, split: str = DEFAULT_SPLIT,
                allow_unknown: bool = False,
                separator: str | None = None) -> dict[str, PairLines]:
    """Reads and checks the three pair lists.

    Args:
        root (str | Path): The config field ``data_root``.
        split (str): Folder of the pair lists in ``root``.
        allow_unknown (bool): An attribute or object that occurs in no training
            pair cannot be learned, and none of the published lists has one:
            it is an error by default, and a warning when this is True.
        separator (str, optional): As in :func:`read_pair_list`.

    Returns:
        dict[str, dict]: For 'train', 'val' and 'test' the pairs of names in
        file order, each with its line number.
    """
    files = {phase: pair_file(root, split, phase) for phase in PHASES}
    lists, faults = {}, []
    for phase, path in files.items():
        lists[phase], found = read_pair_list(path, separator)
        faults += found
    raise_faults(faults, f'A pair list has one "attribute{separator or " "}object" a line, each '
                 'pair once.')
    check_primitives(lists, files, allow_unknown)
    return lists
