"""What each prototype stands for: the training images nearest to it."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.figure import Figure

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
