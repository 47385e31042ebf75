"""Pictures to try: pairs of the model's space that the package can draw."""
from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from PIL import Image

from mmcluspro.datasets import CompositionSpace
from mmcluspro.datasets.shapes import ATTRIBUTES, OBJECTS, Look, draw_image
from mmcluspro.datasets.shapes.draws import Draws

ENLARGE = 5  # for the eye; the tower gets them as small as they were drawn


class Example(NamedTuple):
    """A drawn picture and what was drawn."""
    path: str
    attribute: str
    object: str
    seen: bool


def choose_pairs(space: CompositionSpace, count: int) -> list[int]:
    """Rows of pairs to draw: unseen and seen in turn, each attribute and object once at most.

    Args:
        space (CompositionSpace): The model's pairs.
        count (int): How many at most; fewer where the package cannot draw so many.
    """
    used: set[str] = set()
    found: dict[bool, list[int]] = {True: [], False: []}
    for row in Draws('demo').permutation(len(space.pairs)).tolist():
        attr, obj = space.pairs[row].tolist()
        names = space.attributes[attr], space.objects[obj]
        side = found[bool(space.seen[row])]
        if (names[0] in ATTRIBUTES and names[1] in OBJECTS and used.isdisjoint(names)
                and len(side) < (count + 1) // 2):
            side.append(row)
            used.update(names)
    return [row for rows in zip(found[False], found[True]) for row in rows][:count]


def draw_examples(space: CompositionSpace, folder: str | Path, count: int = 6) -> list[Example]:
    """Draws pictures into a folder."""
    examples = []
    for row in choose_pairs(space, count):
        attr, obj = (int(index) for index in space.pairs[row])
        names = space.attributes[attr], space.objects[obj]
        pixels, _, _ = draw_image(*names, ('demo', *names), Look())
        path = Path(folder) / f'{names[0]}_{names[1]}.png'
        side = ENLARGE * len(pixels)
        Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC).save(path)
        examples.append(Example(str(path), *names, bool(space.seen[row])))
    return examples
