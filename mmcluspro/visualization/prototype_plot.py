"""Draws the training images nearest to each prototype: ``mmcluspro prototypes``."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from mmcluspro.artefact import TrainedModel
from mmcluspro.cli.pictures import parse_prototypes as parse_args
from mmcluspro.datasets import CZSLDataset

from .options import BRANCHES, names_of, open_checkpoints, save_and_say, split_by_branch
from .phase import evenly, picture, run_phase
from .prototype_images import NearestImages
from .style import SMALL, TEXT, WIDTH, WRONG, fitting, new_figure, place, print_style, write

LABEL, GAP, HEAD, MARGIN = 0.5, 0.04, 0.26, 0.06  # inches


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
    for number, row in enumerate(block.rows):
        upper = top + HEAD + number * (side + GAP)
        words = f'{number + 1}: dead' if row.dead else f'{number + 1}: {row.share:.0%}'
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
