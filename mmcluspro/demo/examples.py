"""Pictures to try: pairs of the model's space that the package can draw."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from mmcluspro.datasets import CompositionSpace
from mmcluspro.datasets.shapes import ATTRIBUTES, OBJECTS, Look, draw_image
from mmcluspro.datasets.shapes.draw import Draws
from mmcluspro.visualization.prototypes import PrototypeImages

ATTEMPTS = 4
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


def draw_examples(space: CompositionSpace, folder: str | Path, count: int = 6,
                  attempt: int = 0) -> list[Example]:
    """Draws pictures into a folder.

    Args:
        space (CompositionSpace): The model's pairs.
        folder (str | Path): Where to.
        count (int): How many at most. Defaults to 6.
        attempt (int): Another one draws other pictures of the same pairs. Defaults to 0.
    """
    examples = []
    more = (attempt, ) if attempt else ()
    for row in choose_pairs(space, count):
        attr, obj = (int(index) for index in space.pairs[row])
        names = space.attributes[attr], space.objects[obj]
        pixels, _, _ = draw_image(*names, ('demo', *names, *more), Look())
        path = Path(folder) / f'{"_".join([*names, *map(str, more)])}.png'
        side = ENLARGE * len(pixels)
        Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC).save(path)
        examples.append(Example(str(path), *names, bool(space.seen[row])))
    return examples


def stored_examples(images: PrototypeImages, folder: str | Path) -> list[Example]:
    """Writes the test images that came with a checkpoint into a folder."""
    examples = []
    for number, item in enumerate(images.examples):
        path = Path(folder) / f'example_{number}.jpg'
        path.write_bytes(images.pictures[item.picture])
        examples.append(Example(str(path), item.attribute, item.object, item.seen))
    return examples


def find_examples(space: CompositionSpace, images: PrototypeImages | None, folder: str | Path,
                  answer: Callable[[str], tuple[str, str]]) -> list[Example]:
    """Pictures to try, one that the model gets right first.

    Args:
        space (CompositionSpace): The model's pairs; the package draws those it can.
        images (PrototypeImages, optional): Has test images for models of other data.
        folder (str | Path): For the files.
        answer (Callable): Attribute and object that the model sees in a file.
    """
    def is_right(item: Example) -> bool:
        return answer(item.path) == (item.attribute, item.object)

    examples = draw_examples(space, folder)
    if not examples and images is not None:
        examples = stored_examples(images, folder)
    right = next(filter(is_right, examples), None)
    for attempt in range(1, ATTEMPTS):
        if right is not None or not examples:
            break
        right = next(filter(is_right, draw_examples(space, folder, attempt=attempt)), None)
    if right is None:
        return examples
    same = (right.attribute, right.object)
    return [right, *(item for item in examples if (item.attribute, item.object) != same)]
