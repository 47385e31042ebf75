"""Small pictures of prototypes, stored in a file next to the checkpoint."""
from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mmcluspro.datasets.picture_file import check_scans
from mmcluspro.errors import FileError, reason_of, shown
from mmcluspro.utils.digest import sha256
from mmcluspro.utils.files import write_json
from mmcluspro.utils.plain_files import read_json, verified, with_checksum

NAME = 'prototype_images.json'
REMEDY = 'Make it again with mmcluspro report CHECKPOINT, or remove it.'
MAX_SIDE, MAX_BYTES, MAX_PICTURES = 512, 200_000, 50_000
MAX_VALUES, MAX_ROW, MAX_NAME = 2_000_000, 100_000_000, 1000
BRANCHES = ('attr', 'obj')
MAX_SHOWN = 16  # of a prototype: a page holds each of them, also where they are the same picture
FIELDS = ('digests', 'prototypes', 'pictures', 'examples')


@dataclass
class ShownPrototype:
    """The pictures of a prototype.

    Args:
        share (float): Share of its primitive's training images that are nearest to it.
        dead (bool): Whether training hardly used it.
        pictures (list[int]): Its nearest training images, nearest first, among the ``pictures``
            of the file.
    """
    share: float
    dead: bool
    pictures: list[int]


@dataclass
class ShownExample:
    """A picture of the test images to try, with its true pair."""
    picture: int
    attribute: str
    object: str
    seen: bool


@dataclass
class PrototypeImages:
    """Content of the file.

    Args:
        digests (dict[str, str]): Of the prototypes by branch, see :func:`bank_digest`.
        prototypes (dict[str, dict[int, ShownPrototype]]): By branch and row of the bank.
        pictures (list[bytes]): JPEG files, each image once.
        examples (list[ShownExample]): Test images to try.
    """
    digests: dict[str, str] = field(default_factory=dict)
    prototypes: dict[str, dict[int, ShownPrototype]] = field(default_factory=dict)
    pictures: list[bytes] = field(default_factory=list)
    examples: list[ShownExample] = field(default_factory=list)

    def address(self, number: int) -> str:
        """A picture as a ``data:`` address, for the ``src`` of an HTML image."""
        return data_address(self.pictures[number])

    def fits(self, banks: Mapping[str, Any]) -> bool:
        """Whether the file was made with these prototypes.

        Args:
            banks (Mapping): Banks by branch, of a head.
        """
        return bool(self.prototypes) and all(
            branch in banks and bank_digest(banks[branch]) == digest
            for branch, digest in self.digests.items())


def bank_digest(bank: Any) -> str:
    """Identifies the prototypes of a bank."""
    return sha256(np.ascontiguousarray(bank.prototypes.detach().float().cpu().numpy()).tobytes(),
                  digits=32)


def middle_square(image: Image.Image) -> Image.Image:
    """The largest square in the middle of a picture."""
    edge = min(image.size)
    left, top = (image.width - edge) // 2, (image.height - edge) // 2
    return image.crop((left, top, left + edge, top + edge))


def as_jpeg(image: Image.Image, side: int, square: bool = True, quality: int = 80) -> bytes:
    """A small copy of a picture.

    Args:
        image (Image.Image): RGB.
        side (int): Pixels of the longer side; a smaller picture is not enlarged.
        square (bool): Cut out the middle square. Defaults to True.
        quality (int): Of JPEG. Defaults to 80.
    """
    image = (middle_square(image) if square else image).convert('RGB')
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, 'JPEG', quality=quality)
    return file.getvalue()


def data_address(picture: bytes) -> str:
    """A JPEG file as a ``data:`` address."""
    return 'data:image/jpeg;base64,' + base64.b64encode(picture).decode()


def write_prototype_images(found: PrototypeImages, path: str | Path) -> Path:
    """Writes the file, with a checksum."""
    content = dict(
        digests=found.digests,
        prototypes={branch: [[row, round(item.share, 4), item.dead, item.pictures]
                             for row, item in rows.items()]
                    for branch, rows in found.prototypes.items()},
        pictures=[base64.b64encode(picture).decode() for picture in found.pictures],
        examples=[[item.picture, item.attribute, item.object, item.seen]
                  for item in found.examples])
    write_json(path, with_checksum(content), indent=None)
    return Path(path)


def read_prototype_images(path: str | Path) -> PrototypeImages:
    """Reads the file; everything in it is checked, so that a page may show it.

    Raises:
        FileError: Something is not what :func:`write_prototype_images` writes.
    """
    content = verified(read_json(path, dict, REMEDY, MAX_VALUES), path, REMEDY, FIELDS)
    try:
        pictures = [_checked(text) for text in _bounded(content['pictures'], MAX_PICTURES)]
        total = len(pictures)
        return PrototypeImages(
            {_branch(branch): _name(digest) for branch, digest in content['digests'].items()},
            {_branch(branch): {_place(row, MAX_ROW): ShownPrototype(
                _share(share), bool(dead),
                [_place(i, total) for i in _bounded(places, MAX_SHOWN)])
                for row, share, dead, places in rows}
             for branch, rows in content['prototypes'].items()},
            pictures,
            [ShownExample(_place(picture, total), _name(attribute), _name(obj), bool(seen))
             for picture, attribute, obj, seen in _bounded(content['examples'], 100)])
    except (ValueError, TypeError, KeyError, AttributeError, OSError, SyntaxError,
            Image.DecompressionBombError) as error:
        raise FileError(path, f'it is not a file of prototype images ({reason_of(error)})',
                        REMEDY) from None


def _bounded(items: Any, most: int) -> list[Any]:
    if not isinstance(items, list) or len(items) > most:
        raise ValueError(f'expected a list of at most {most:,} items')
    return items


def _place(number: Any, total: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < total:
        raise ValueError(f'number {shown(number)} of {total}')
    return number


def _name(text: Any) -> str:
    if not isinstance(text, str) or len(text) > MAX_NAME:
        raise ValueError(f'{shown(text)} is not a name of at most {MAX_NAME} characters')
    return text


def _branch(name: str) -> str:
    if name not in BRANCHES:
        raise ValueError(f'{shown(name)} is not one of {", ".join(BRANCHES)}')
    return name


def _share(number: Any) -> float:
    if not isinstance(number, (int, float)) or not 0 <= number <= 1:
        raise ValueError(f'a share of {shown(number)}')
    return float(number)


def _checked(text: Any) -> bytes:
    """A JPEG file that can be decoded, of bounded size."""
    if not isinstance(text, str) or len(text) > MAX_BYTES * 4 // 3 + 4:
        raise ValueError('a picture is too large')
    try:
        picture = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError('a picture is not base64') from None
    with Image.open(io.BytesIO(picture), formats=['JPEG']) as image:
        if max(image.size) > MAX_SIDE:
            raise ValueError(f'a picture of {image.width} x {image.height} pixels')
        check_scans(picture)
        image.load()
    return picture
