"""Groups of images that a split keeps together: photos of one thing, or of one moment."""
from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mmcluspro.errors import FileError
from mmcluspro.utils.plain_files import read_text
from mmcluspro.utils.spreadsheet import unguard

from .table_file import TableRow

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
        lost = [row.image for row in rows if row.image not in column]
        if lost:
            raise FileError(table or '', f'{lost[0]!r} is not in its column image',
                            'Write one image per line, without line breaks inside quotes.')
        return {row.image: column[row.image] for row in rows}
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


def _column(table: str | Path, name: str) -> dict[str, str]:
    """Values of a column by image; {} where the table has no such column."""
    text = read_text(Path(table).expanduser(), 'Save it as "CSV UTF-8".')
    sign = max(',;\t', key=text.partition('\n')[0].count)
    reader = csv.DictReader(text.splitlines(), delimiter=sign)
    header = {field.strip().lower(): field for field in reader.fieldnames or ()}
    if name.lower() not in header:
        return {}
    found = {unguard((line[header['image']] or '').strip()).replace('\\', '/'):
             (line[header[name.lower()]] or '').strip() for line in reader}
    empty = [image for image, value in found.items() if image and not value]
    if empty:
        raise FileError(table, f'{empty[0]!r} has nothing in the column {name}',
                        'Fill the column, or group by another one.')
    return found


def near_duplicates(images: Sequence[str], root: str | Path,
                    similar: float = SIMILAR) -> dict[str, str]:
    """Groups images that look almost the same, also over several steps.

    Each image becomes a grey picture of 16 x 16 pixels without its mean; two are near when the
    cosine reaches ``similar``. Images that cannot be read are groups of their own.

    Args:
        images (Sequence[str]): Names below ``root``.
        root (str | Path): A folder.
        similar (float): Defaults to 0.99.
    """
    looks = np.stack([_look(Path(root).expanduser() / name) for name in images])
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


def _look(path: Path) -> np.ndarray:
    from .picture_file import read_picture
    try:
        pixels = read_picture(str(path)).mean(axis=2)
    except (OSError, ValueError):
        return np.zeros(SIDE * SIDE, np.float32)
    import cv2
    small = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
    small = (small - small.mean()).ravel()
    return small / max(float(np.linalg.norm(small)), 1e-6)


def count_groups(groups: Mapping[str, str]) -> str:
    """A sentence about groups of more than one image."""
    sizes: dict[str, int] = {}
    for group in groups.values():
        sizes[group] = sizes.get(group, 0) + 1
    shared = [size for size in sizes.values() if size > 1]
    return (f'{len(groups)} images in {len(sizes)} groups; {len(shared)} groups have more than one '
            f'image, the largest {max(sizes.values())}')
