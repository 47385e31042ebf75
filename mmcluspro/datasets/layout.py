"""The published layout: where its files are, and how to write them.

::

    <root>/images/…                                   the images
    <root>/<split>/{train,val,test}_pairs.txt         "attribute object" lines
    <root>/metadata_<split>.t7                        torch.save of a list of dicts
                                                      with image, attr, obj, set
"""
import pickle
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mmcluspro.errors import Fault, FileError, raise_faults, reason_of, shown
from mmcluspro.utils.files import atomic_path, leaves, write_text
from mmcluspro.utils.plain_files import once_per_file, read_text
from mmcluspro.utils.safe_load import check_archive, load_pickle

from .names import label, labels

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


ROW_KEYS = ('image', 'attr', 'obj', 'set')


def metadata_file(root: str | Path, split: str = DEFAULT_SPLIT) -> Path:
    return Path(root).expanduser() / f'metadata_{split}.t7'


def write_layout(root: str | Path,
                 rows: Iterable[Mapping[str, Any]],
                 pairs: Mapping[str, Iterable[Sequence[str]]],
                 split: str = DEFAULT_SPLIT) -> Path:
    """Writes pair lists and metadata so that the readers of published data read them.

    The images themselves are the caller's: they belong in ``root/images``, at
    best in folders ``<attr>_<obj>/``, because ``check_dataset.py`` can then find
    a label that disagrees with the folder.

    Args:
        root (str | Path): The later ``data_root``; made when it is not there.
        rows (Iterable[dict]): ``image`` (path relative to ``root/images``),
            ``attr``, ``obj``, ``set`` ('train', 'val' or 'test'); further keys
            are kept.
        pairs (dict): For 'train', 'val' and 'test' the (attribute, object)
            names. The lists of 'val' and 'test' may repeat training pairs.
        split (str): Name of the split. Defaults to 'compositional-split-natural'.

    Returns:
        Path: The metadata file.
    """
    lists = {phase: sorted({(attr, obj) for attr, obj in pairs[phase]}) for phase in PHASES}
    for name in {name for phase in PHASES for pair in lists[phase] for name in pair}:
        if not name or name.split() != [name] or not name.isprintable():
            raise ValueError(
                f'The name {name!r} cannot be in a pair list, where a space separates attribute '
                'and object; write underscores instead of spaces and control characters.')
    metadata = [dict(row) for row in rows]
    known = {phase: set(lists[phase]) | set(lists['train']) for phase in PHASES}
    for number, row in enumerate(metadata):
        missing = [key for key in ROW_KEYS if key not in row]
        if missing or (row['attr'], row['obj']) not in known.get(row['set'], ()):
            raise ValueError(
                f'Row {number} of the metadata ({row}) '
                + (f'lacks {missing}.' if missing else f'has a pair of no {row["set"]!r} list.'))
        if not isinstance(row['image'], str) or leaves(row['image']):
            raise ValueError(f'Row {number} of the metadata: the image {shown(row["image"])} is '
                             'not a name below the folder of the images.')
    for phase in PHASES:
        path = pair_file(root, split, phase)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, ''.join(f'{attr} {obj}\n' for attr, obj in lists[phase]))
    target = metadata_file(root, split)
    with atomic_path(target) as part:
        torch.save(metadata, part)
    return target


Row = dict[str, Any]
LABELS = ('attr', 'obj')


@once_per_file(kept=1)
def read_metadata(path: Path) -> list[Row]:
    """Reads ``metadata_<split>.t7``, a torch-saved list of dicts, without running code.

    Only plain containers, strings and numbers are accepted (``weights_only=True``).
    Rows are not checked here, see :func:`row_faults`.
    """
    if not path.is_file():
        raise missing_file(path, 'metadata')
    check_archive(path, str(path))
    try:
        rows = load_pickle(path, str(path))
    except FileError:
        raise
    except pickle.UnpicklingError as error:
        raise FileError(
            path, 'it is not a torch-saved list of plain dicts: it is damaged, or holds other '
            f'Python objects, which could run code (torch says: {reason_of(error)})',
            'tools/dataset_converters/convert_metadata.py rewrites a file that holds NumPy '
            'strings or tuples, without running code.') from error
    except Exception as error:
        raise FileError(path, f'it cannot be read ({reason_of(error)})', 'Download it again, or '
                        'compare its size with the published one.') from error
    if not isinstance(rows, list):
        raise FileError(path, f'it holds a {type(rows).__name__}, expected a list of dicts with '
                        f'the keys {", ".join(ROW_KEYS)}', 'Download it again.')
    # Names that are no text stay, for row_faults.
    names = [row[key] for row in rows if isinstance(row, dict) for key in LABELS
             if isinstance(row.get(key), str)]
    forms = labels(names, path)
    if all(name == form for name, form in forms.items()):
        return rows
    return [{key: forms[value] if key in LABELS and isinstance(value, str) else value
             for key, value in row.items()} if isinstance(row, dict) else row for row in rows]


def row_faults(rows: Sequence[Any], path: Path) -> list[Fault]:
    """Rows that are not dicts of strings under the needed keys (counted from 0)."""
    faults = []
    for number, row in enumerate(rows):
        if isinstance(row, dict):
            wrong = [key for key in ROW_KEYS if not isinstance(row.get(key), str)]
            what = f'no text under {", ".join(wrong)}: {shown(row, 200)}' if wrong else ''
            away = [row[key] for key in ('image', '_image')
                    if isinstance(row.get(key), str) and leaves(row[key])]
            if away and not wrong:
                what = f'the image {shown(away[0])} is not a name below the folder of the images'
        else:
            what = f'a {type(row).__name__} instead of a dict'
        if what:
            faults.append(Fault('metadata row', f'{path} row {number}', what[:300]))
    return faults


class Selection(NamedTuple):
    """Rows of one phase.

    Attributes:
        numbers (list[int]): Rows that belong to the phase, counted from 0.
        skipped (dict[str, int]): Reason -> number of rows left out.
        faults (list[Fault]): Rows whose ``set`` contradicts the pair lists.
    """
    numbers: list[int]
    skipped: dict[str, int]
    faults: list[Fault]


def select_rows(rows: Sequence[Row], lists: Mapping[str, Mapping[Pair, int]], phase: str,
                path: Path) -> Selection:
    """Chooses the rows of a phase by their ``set``, as the published code does.

    Rows with attribute, object or set ``NA`` and pairs of no list are left out
    and counted. A row whose pair is in a list, but not in one its set may use,
    is a fault: an unseen pair in training would spoil every later number.
    """
    union = set().union(*(lists[name] for name in PHASES))
    allowed = set(lists['train']) | set(lists[phase])
    numbers, faults, skipped = [], [], Counter[str]()
    for number, row in enumerate(rows):
        if row['set'] != phase and row['set'] in PHASES:
            continue
        pair = (row['attr'], row['obj'])
        if 'NA' in (*pair, row['set']):
            skipped['attribute, object or set NA'] += 1
        elif row['set'] != phase:
            skipped['set none of train, val, test'] += 1
        elif pair not in union:
            skipped['pair in no pair list'] += 1
        elif pair not in allowed:
            what = ('is unseen (not in train_pairs.txt)' if phase == 'train' else
                    f'is in neither train_pairs.txt nor {phase}_pairs.txt')
            faults.append(Fault('set', f'{path} row {number}',
                                f'set is {phase!r}, but the pair ({" ".join(pair)}) {what}'))
        else:
            numbers.append(number)
    return Selection(numbers, dict(skipped), faults)
