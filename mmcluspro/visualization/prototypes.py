"""Training images nearest to each prototype: ``mmcluspro prototypes``, and a file for the demo."""
from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.artefact import TrainedModel
from mmcluspro.cli.pictures import MAX_IMAGES
from mmcluspro.cli.pictures import parse_prototypes as parse_args
from mmcluspro.datasets import CZSLDataset
from mmcluspro.datasets.pictures import check_scans
from mmcluspro.errors import FileError, reason_of
from mmcluspro.fields import choice, flag, integer, items, mapping, number, text
from mmcluspro.utils.digest import sha256
from mmcluspro.utils.files import write_json
from mmcluspro.utils.plain_files import read_json, verified, with_checksum

from .cases import choose_cases
from .options import BRANCHES, names_of, open_checkpoints, save_and_say, split_by_branch
from .phase import (
    PhaseAnswers,
    evenly,
    image_batches,
    middle_square,
    picture,
    run_phase,
    unit_features,
)
from .style import SMALL, TEXT, WIDTH, WRONG, fitting, new_figure, place, print_style, write

NAME = 'prototype_images.json'
REMEDY = 'Make it again with mmcluspro report CHECKPOINT, or remove it.'
SIDE, EXAMPLE_SIDE = 72, 320  # pixels
MOST = 64  # primitives of a branch
MAX_SIDE, MAX_BYTES, MAX_PICTURES, MAX_VALUES = 512, 200_000, 50_000, 2_000_000
# A page shows all pictures of a prototype, also where they are the same one: at most 16.
BRANCH, PLACE = choice('attr', 'obj'), integer(0, 100_000_000)
PLACES, TEXTS = items(PLACE, 0, 16), items(text(MAX_BYTES * 4 // 3 + 4), 0, MAX_PICTURES)
LABEL, GAP, HEAD, MARGIN = 0.5, 0.04, 0.26, 0.06  # inches


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
    content = verified(read_json(path, dict, REMEDY, MAX_VALUES), path, REMEDY,
                       tuple(PrototypeImages.__dataclass_fields__))
    try:
        return _checked(**content)
    except (ValueError, TypeError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise FileError(path, f'it is not a file of prototype images ({reason_of(error)})',
                        REMEDY) from None


def _checked(digests: Any, prototypes: Any, pictures: Any, examples: Any) -> PrototypeImages:
    found = PrototypeImages(mapping(BRANCH, text())(digests, 'digests'),
                            pictures=[_jpeg(data) for data in TEXTS(pictures, 'pictures')])
    known = integer(0, len(found.pictures) - 1)

    def shown(row: Any, share: Any, dead: Any, places: Any) -> tuple[int, ShownPrototype]:
        return PLACE(row, 'row'), ShownPrototype(
            float(number(0, 1)(share, 'share')), flag(dead, 'dead'),
            [known(place, 'picture') for place in PLACES(places, 'pictures')])

    def example(place: Any, attribute: Any, obj: Any, seen: Any) -> ShownExample:
        return ShownExample(known(place, 'picture'), text()(attribute, 'attribute'),
                            text()(obj, 'object'), flag(seen, 'seen'))

    rows = mapping(BRANCH, items(lambda row, _: shown(*row), 0, MAX_VALUES))
    found.prototypes = {branch: dict(each)
                        for branch, each in rows(prototypes, 'prototypes').items()}
    found.examples = items(lambda row, _: example(*row), 0, 100)(examples, 'examples')
    return found


def _jpeg(data: str) -> bytes:
    """A JPEG file that can be decoded, of bounded size."""
    try:
        content = base64.b64decode(data, validate=True)
    except binascii.Error:
        raise ValueError('a picture is not base64') from None
    with Image.open(io.BytesIO(content), formats=['JPEG']) as image:
        if max(image.size) > MAX_SIDE:
            raise ValueError(f'a picture of {image.width} x {image.height} pixels')
        check_scans(content)
        image.load()
    return content


class NearestImages:
    """Keeps the ``count`` best images of each prototype, by cosine, inside its primitive.

    Args:
        prototypes (Tensor): Shape (P, D).
        offsets (Tensor): ``prototypes[offsets[c]:offsets[c + 1]]`` belong to primitive ``c``,
            shape (C + 1,).
        count (int): Images to keep of each.
    """

    def __init__(self, prototypes: Tensor, offsets: Tensor, count: int) -> None:
        if count < 1:
            raise ValueError(f'The number of images must be at least 1, got {count}.')
        self.prototypes = F.normalize(prototypes.float().cpu(), dim=1)
        sizes = offsets.cpu().diff()
        self.owner = torch.arange(len(sizes)).repeat_interleave(sizes)
        self.cosine = torch.full((len(prototypes), count), -torch.inf)
        self.index = torch.full((len(prototypes), count), -1)
        self.assigned = torch.zeros(len(prototypes), dtype=torch.long)

    def update(self, features: Tensor, labels: Tensor, index: Tensor) -> None:
        """Adds a batch of images.

        Args:
            features (Tensor): Shape (B, D).
            labels (Tensor): Primitive of each, shape (B,).
            index (Tensor): Non-negative index of each image, shape (B,).
        """
        own = labels[:, None] == self.owner
        cosine = (F.normalize(features.float(), dim=1) @ self.prototypes.T).masked_fill(
            ~own, -torch.inf)
        has = own.any(dim=1)  # a primitive may have no prototypes
        self.assigned += torch.bincount(cosine[has].argmax(dim=1), minlength=len(self.assigned))
        # Stable, the kept ones first: of equal cosines the earlier image stays.
        every = torch.cat([self.cosine, cosine.T], dim=1)
        every, order = every.sort(dim=1, descending=True, stable=True)
        images = torch.cat([self.index, index.expand(len(self.index), -1)], dim=1)
        count = self.cosine.shape[1]
        self.cosine, self.index = every[:, :count], images.gather(1, order[:, :count])
        self.index = self.index.masked_fill(self.cosine == -torch.inf, -1)

    def shares(self) -> Tensor:
        """Share of its primitive's images whose nearest prototype each one is, shape (P,)."""
        classes = int(self.owner.max()) + 1 if len(self.owner) else 0
        total = torch.zeros(classes).index_add_(0, self.owner, self.assigned.float())
        return self.assigned / total[self.owner].clamp_min(1)

    def images(self, row: int) -> list[int]:
        """The images of a prototype, nearest first; fewer if there are not enough."""
        return [index for index in self.index[row].tolist() if index >= 0]


def prototype_images(model: TrainedModel, dataset: CZSLDataset, count: int = 4, most: int = MOST,
                     max_images: int | None = MAX_IMAGES, batch_size: int = 64,
                     progress: str = '') -> PrototypeImages:
    """Finds the training images nearest to each prototype, and shrinks them.

    Args:
        model (TrainedModel): With prototypes; without any, nothing is found.
        dataset (CZSLDataset): Training images, as a test sees them.
        count (int): Images of each prototype. Defaults to 4.
        most (int): Primitives of a branch, the most frequent ones. Defaults to 64.
        max_images (int, optional): Look at so many images, evenly spread. Defaults to 2000.
        batch_size (int): Defaults to 64.
        progress (str): Says on stderr how far it is. Defaults to '': nothing.
    """
    found = PrototypeImages()
    banks = {branch: bank for branch, bank in model.network.head.prototypes.items()
             if bool(bank.initialised)}
    if not banks:
        return found
    nearest = {branch: NearestImages(bank.prototypes, bank.offsets, count)
               for branch, bank in banks.items()}
    images = {branch: torch.zeros(bank.num_classes, dtype=torch.long)
              for branch, bank in banks.items()}
    for index, feats, labels in image_batches(
            model, dataset, evenly(len(dataset), max_images), batch_size, progress):
        for branch, feature in unit_features(feats).items():
            if branch in banks:
                nearest[branch].update(feature, labels[branch], index)
                images[branch] += torch.bincount(labels[branch], minlength=len(images[branch]))
    places: dict[int, int] = {}  # of the images in the dataset → in the file
    for branch, bank in banks.items():
        found.digests[branch] = bank_digest(bank)
        rows = found.prototypes[branch] = {}
        shares, dead = nearest[branch].shares(), bank.dead().cpu()
        for primitive in sorted(images[branch].argsort(descending=True, stable=True)[:most]
                                .tolist()):
            start, end = bank.offsets[primitive:primitive + 2].tolist()
            for row in range(start, end):
                shown = [places.setdefault(i, len(places)) for i in nearest[branch].images(row)]
                rows[row] = ShownPrototype(float(shares[row]), bool(dead[row]), shown)
    found.pictures = [as_jpeg(Image.fromarray(picture(dataset, index)), SIDE) for index in places]
    return found


def add_examples(found: PrototypeImages, dataset: CZSLDataset, answers: PhaseAnswers,
                 count: int = 6, seed: int = 0) -> None:
    """Adds test images to try: two that are answered rightly, the others at random.

    Args:
        found (PrototypeImages): Where to add them.
        dataset (CZSLDataset): Of the answers.
        answers (PhaseAnswers): Of a test.
        count (int): How many. Defaults to 6.
        seed (int): Defaults to 0.
    """
    target, seen = answers.outcomes.target, answers.seen
    right = choose_cases(np.flatnonzero(answers.outcomes.right), target, seen, 2, seed)
    rest = choose_cases(np.arange(len(target)), target, seen, count + 2, seed)
    for row in dict.fromkeys([*right, *rest]):
        if len(found.examples) == count:
            return
        image = Image.fromarray(picture(dataset, int(answers.index[row])))
        found.examples.append(ShownExample(
            len(found.pictures), *answers.pair_names(target[row]), bool(seen[row])))
        found.pictures.append(as_jpeg(image, EXAMPLE_SIDE, square=False, quality=90))


@dataclass
class PrototypeRow:
    """One prototype.

    Args:
        images (list[np.ndarray]): Nearest training images, nearest first, (H, W, 3) RGB each.
        share (float): Share of the primitive's training images that it is nearest to.
        dead (bool): Whether training left it unused.
    """
    images: list[np.ndarray]
    share: float
    dead: bool = False


@dataclass
class PrimitiveBlock:
    """The prototypes of one primitive.

    Args:
        title (str): For example 'red (attribute, 240 images)'.
        rows (list[PrototypeRow]): Its prototypes.
    """
    title: str
    rows: list[PrototypeRow] = field(default_factory=list)


def draw_prototypes(blocks: Sequence[PrimitiveBlock], width: float = WIDTH) -> Figure:
    """A block a primitive, a row a prototype: its share, then its nearest images.

    Args:
        blocks (Sequence[PrimitiveBlock]): What to draw; two blocks stand side by side.
        width (float): Inches. Defaults to the text width of a paper.
    """
    if not blocks or not all(block.rows for block in blocks):
        raise ValueError('draw_prototypes needs primitives with at least one prototype each.')
    columns = min(2, len(blocks))
    across = max(1, *(len(row.images) for block in blocks for row in block.rows))
    room = (width - MARGIN) / columns
    side = min(0.8, (room - LABEL - MARGIN) / across - GAP)
    pairs = [blocks[start:start + columns] for start in range(0, len(blocks), columns)]
    heights = [HEAD + max(len(block.rows) for block in line) * (side + GAP) + MARGIN
               for line in pairs]
    with print_style():
        figure = new_figure(width, sum(heights) + MARGIN)
        for line, top in zip(pairs, np.cumsum([0.0, *heights[:-1]])):
            for column, block in enumerate(line):
                _draw_block(figure, block, MARGIN + column * room, MARGIN + top, side,
                            room - MARGIN)
    return figure


def _draw_block(figure: Figure, block: PrimitiveBlock, left: float, top: float, side: float,
                room: float) -> None:
    write(figure, left, top + HEAD / 2, fitting(block.title, room, TEXT, weight='bold'),
          va='center', weight='bold', fontsize=TEXT)
    for nth, row in enumerate(block.rows):
        upper = top + HEAD + nth * (side + GAP)
        words = f'{nth + 1}: dead' if row.dead else f'{nth + 1}: {row.share:.0%}'
        write(figure, left, upper + side / 2, words, va='center', fontsize=SMALL,
              color=WRONG if row.dead else 'black')
        if not row.images:
            write(figure, left + LABEL, upper + side / 2, 'no image', va='center',
                  fontsize=SMALL, color='#666666')
        for column, image in enumerate(row.images):
            axes = place(figure, left + LABEL + column * (side + GAP), upper, side, side)
            axes.imshow(image, interpolation='nearest', alpha=0.4 if row.dead else 1.0)
            axes.set_axis_off()


def check_banks(model: TrainedModel, chosen: dict[str, list[int]], name: str) -> None:
    """Raises an error that explains why there are no prototypes."""
    for branch, classes in chosen.items():
        if classes and branch not in model.network.head.clustered:
            raise ValueError(
                f'{name} has no prototypes of {BRANCHES[branch]}s: it is not a ClusPro model, was '
                'published without them, or clusters the other branch only. Give an epoch_*.pth '
                'or best_*.pth of a training with ClusProHead.')
        if classes and branch not in model.network.head.prototypes:
            raise ValueError(f'The prototypes of {name} were never initialised.')


def make_block(dataset: CZSLDataset, bank: Any, nearest: NearestImages, branch: str,
               index: int) -> PrimitiveBlock:
    """Rows of one primitive, and words about them."""
    start, end = bank.offsets[index:index + 2].tolist()
    dead, shares = bank.dead().cpu(), nearest.shares()
    name, total = names_of(dataset.space, branch)[index], int(nearest.assigned[start:end].sum())
    rows = [PrototypeRow([picture(dataset, image, 160) for image in nearest.images(row)],
                         float(shares[row]), bool(dead[row])) for row in range(start, end)]
    words = ', '.join('dead' if row.dead else f'{row.share:.0%}' for row in rows)
    print(f'{name} ({BRANCHES[branch]}, {total} images): {words}')
    return PrimitiveBlock(f'{name} ({BRANCHES[branch]}, {total} images)', rows)


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the command line and draws."""
    args = parse_args(argv)
    (model, ), dataset = open_checkpoints([args.checkpoint], args)
    chosen = split_by_branch(dataset.space, args.primitive)
    check_banks(model, chosen, args.checkpoint)
    banks = {branch: model.network.head.prototypes[branch]
             for branch, classes in chosen.items() if classes}
    nearest = {branch: NearestImages(bank.prototypes, bank.offsets, args.images)
               for branch, bank in banks.items()}
    indices = evenly(len(dataset), args.max_images)
    for batch in run_phase(model, dataset, indices, batch_size=args.batch_size,
                           progress=f'Features of {len(indices)} {args.phase} images'):
        for branch, found in nearest.items():
            found.update(batch.features[branch], batch.labels[branch], batch.index)
    blocks = [make_block(dataset, banks[branch], nearest[branch], branch, index)
              for branch, classes in chosen.items() for index in classes]
    save_and_say(draw_prototypes(blocks), args.out)
