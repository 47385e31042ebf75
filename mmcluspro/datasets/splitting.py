"""A seen/unseen split of own data, the same on every machine, and groups that it keeps together."""
from __future__ import annotations

import math
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from mmcluspro.errors import FileError
from mmcluspro.utils.digest import sha256
from mmcluspro.utils.plain_files import read_csv

from .layout import Pair
from .table_file import SAVE_AS, TableRow

NEAR = 'near-duplicates'
SIMILAR = 0.99  # cosine of two small grey pictures
SIDE = 16
CHUNK = 512


def find_groups(rows: Sequence[TableRow], by: str, root: str | Path,
                table: str | Path | None = None) -> dict[str, str]:
    """The group of each image.

    Args:
        rows (Sequence[TableRow]): Images.
        by (str): A column of the table; a regular expression with one pair of brackets that is
            searched in the name of the image, such as ``'(\\d+)_\\d+'``; or 'near-duplicates',
            for images that look almost the same.
        root (str | Path): Folder of the images.
        table (str | Path, optional): CSV of the images. Defaults to None: there is none.
    """
    if by == NEAR:
        return near_duplicates([row.image for row in rows], root)
    column = {} if table is None else _column(table, by)
    if column:
        lost = [row.image for row in rows if not column.get(row.line)]
        if lost:
            raise FileError(table or '', f'{lost[0]!r} has nothing in the column {by}',
                            'Fill the column, or group by another one.')
        return {row.image: column[row.line] for row in rows}
    try:
        pattern = re.compile(by)
    except re.error as error:
        raise ValueError(f'--group-by {by!r} is neither a column of the table nor a regular '
                         f'expression ({error}).') from None
    if pattern.groups != 1:
        raise ValueError(
            f'--group-by {by!r} is not a column' + ('' if table is None else f' of {table}')
            + '; as a regular expression it needs one pair of brackets around the part of the '
            f"file name that names the group, such as '([^/]+)_[0-9]+'; or say {NEAR}.")
    found = {row.image: pattern.search(row.image) for row in rows}
    missed = [image for image, match in found.items() if match is None]
    if missed:
        raise ValueError(f'--group-by {by!r} finds nothing in {len(missed)} of {len(rows)} file '
                         f'names, first {missed[0]!r}.')
    return {image: match[1] or '' for image, match in found.items() if match}


def _column(table: str | Path, name: str) -> dict[int, str]:
    """Values of a column by line; {} where the table has no such column."""
    needed = (name.lower(), )
    read = read_csv(Path(table).expanduser(), needed, SAVE_AS)
    if needed[0] not in read.names:
        return {}
    return {line: row[needed[0]].strip() for line, row in read.columns(needed, SAVE_AS)}


def near_duplicates(images: Sequence[str], root: str | Path,
                    similar: float = SIMILAR, colour: bool = False) -> dict[str, str]:
    """Groups images that look almost the same, also over several steps.

    Each image becomes a picture of 16 x 16 pixels without its mean; two are near when the cosine
    reaches ``similar``. Images that cannot be read are groups of their own.

    Args:
        images (Sequence[str]): Names below ``root``.
        root (str | Path): A folder.
        similar (float): Defaults to 0.99.
        colour (bool): Whether colours count, or only grey values. Defaults to False.
    """
    looks = np.stack([_look(Path(root).expanduser() / name, colour) for name in images])
    owner = list(range(len(images)))

    def top(place: int) -> int:
        while owner[place] != place:
            owner[place] = place = owner[owner[place]]
        return place

    for start in range(0, len(images), CHUNK):
        close = looks[start:start + CHUNK] @ looks.T >= similar
        for one, two in zip(*np.nonzero(close)):
            owner[top(int(two))] = top(start + int(one))
    return {name: images[top(place)] for place, name in enumerate(images)}


def _look(path: Path, colour: bool) -> np.ndarray:
    from .pictures import read_picture
    try:
        pixels = read_picture(str(path))
    except (OSError, ValueError):
        return np.zeros(SIDE * SIDE * (3 if colour else 1), np.float32)
    import cv2
    if not colour:
        pixels = pixels.mean(axis=2)
    small = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
    small = (small - small.mean(axis=(0, 1))).ravel()
    return small / max(float(np.linalg.norm(small)), 1.0)  # a plain one is like none


def count_groups(groups: Mapping[str, str]) -> str:
    """A sentence about groups of more than one image."""
    sizes: dict[str, int] = {}
    for group in groups.values():
        sizes[group] = sizes.get(group, 0) + 1
    shared = [size for size in sizes.values() if size > 1]
    return (f'{len(groups)} images in {len(sizes)} groups; {len(shared)} groups have more than one '
            f'image, the largest {max(sizes.values())}')


def make_split(rows: Sequence[TableRow], seed: int | str = 0, unseen_fraction: float = 0.4,
               val_fraction: float = 0.15, test_fraction: float = 0.15,
               groups: Mapping[str, str] | None = None) -> list[TableRow]:
    """Chooses unseen pairs, and holds out images of the seen ones.

    Random choices come from SHA-256 of the seed and the names, so the result depends neither on the
    order of the rows nor on a library's generator.

    * Every attribute and every object keeps a seen pair. When that leaves fewer
      unseen pairs than asked for, a warning says how many there are.
    * Unseen pairs go in turn to test and validation, with all their images.
    * Of the images of seen pairs, ``val_fraction`` and ``test_fraction`` go to
      validation and test; each seen pair keeps at least one training image.

    Args:
        rows (Sequence[TableRow]): Images; their ``split`` is ignored.
        seed (int | str): Another seed gives another split. Defaults to 0.
        unseen_fraction (float): Fraction of the pairs that is unseen. Defaults to 0.4.
        val_fraction (float): Fraction of the images of seen pairs for validation. Defaults to 0.15.
        test_fraction (float): Fraction of the images of seen pairs for the test. Defaults to 0.15.
        groups (Mapping[str, str], optional): Group of each image. Images of one group are never
            in two phases; a group with an image of an unseen pair goes where that pair is.
            Defaults to None: each image on its own.

    Returns:
        list[TableRow]: The rows in the same order with ``split`` set.
    """
    _check(unseen_fraction, val_fraction, test_fraction)
    images: dict[Pair, list[str]] = defaultdict(list)
    for row in rows:
        images[row.attribute, row.object].append(row.image)
    order = shuffled(images, seed)
    wanted = round(unseen_fraction * len(order))
    unseen = choose_unseen(order, wanted)
    if len(unseen) < wanted:
        warnings.warn(
            f'Only {len(unseen)} of {len(order)} pairs can be unseen, {wanted} were asked for '
            f'(unseen_fraction={unseen_fraction}): every attribute and object keeps a seen pair.',
            stacklevel=2)
    group = {row.image: (groups or {}).get(row.image, row.image) for row in rows}
    phase_of: dict[str, str] = {}  # of a group
    for turn, pair in enumerate(unseen):
        for image in images[pair]:
            phase_of.setdefault(group[image], ('test', 'val')[turn % 2])
    chosen = set(unseen)
    owed = {'val': 0.0, 'test': 0.0}
    for pair in order:
        if pair not in chosen:
            sizes = Counter(group[image] for image in images[pair] if group[image] not in phase_of)
            taken = hold_back(sizes.total(), {'val': val_fraction, 'test': test_fraction}, owed)
            names = [name for name, in shuffled(((name, ) for name in sizes), seed)]
            phase_of.update(_share_out(names, sizes, taken))
    return [row._replace(split=phase_of[group[row.image]]) for row in rows]


def _share_out(names: Sequence[str], sizes: Mapping[str, int],
               taken: dict[str, int]) -> dict[str, str]:
    """Phases for the groups of a seen pair, of which the last one stays in training."""
    left, found = dict(taken), {}
    for name in names[:-1]:
        found[name] = next((phase for phase in left
                            if left[phase] > 0 and 2 * left[phase] >= sizes[name]), 'train')
        if found[name] in left:
            left[found[name]] -= sizes[name]
    return {**found, **dict.fromkeys(names[-1:], 'train')}


def choose_unseen(order: Iterable[Pair], number: int) -> list[Pair]:
    """Chooses pairs in the given order so that each primitive keeps a pair that is not chosen."""
    order = list(order)
    attrs = Counter(attr for attr, _ in order)
    objs = Counter(obj for _, obj in order)
    unseen: list[Pair] = []
    for attr, obj in order:
        if len(unseen) < number and attrs[attr] > 1 and objs[obj] > 1:
            attrs[attr] -= 1
            objs[obj] -= 1
            unseen.append((attr, obj))
    return unseen


def _check(unseen: float, val: float, test: float) -> None:
    for name, value in (('unseen_fraction', unseen), ('val_fraction', val),
                        ('test_fraction', test)):
        if not 0 <= value < 1:
            raise ValueError(f'make_split.{name} must lie in [0, 1), got {value}.')
    if val + test >= 1:
        raise ValueError('make_split: val_fraction + test_fraction must be below 1, got '
                         f'{val} + {test}: nothing would be left for training.')


def shuffled(items: Iterable[tuple], seed: int | str) -> list:
    """Shuffles tuples of text; the order depends only on them and the seed."""
    def key(item: tuple) -> tuple:
        return sha256('\0'.join((str(seed), *item)).encode()), item

    return sorted(items, key=key)


def hold_back(number: int, fractions: dict[str, float],
               owed: dict[str, float]) -> dict[str, int]:
    """Images of one pair for each phase.

    Rounding errors are carried over to the next pairs; otherwise pairs with two or three images
    would never reach validation.
    """
    left, taken = max(number - 1, 0), {}
    for phase, fraction in fractions.items():
        owed[phase] += number * fraction
        taken[phase] = min(math.floor(owed[phase] + 1e-9), math.ceil(number * fraction), left)
        owed[phase] = min(owed[phase] - taken[phase], 1.0)
        left -= taken[phase]
    return taken
