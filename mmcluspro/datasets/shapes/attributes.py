"""The attributes: what each does to a scene, in which step, in two modes."""
from collections.abc import Callable
from dataclasses import dataclass

from . import form, surface
from .colors import NAMED_COLORS, NEUTRAL_COLORS, any_color, jitter
from .draws import Draws
from .geometry import Shape
from .objects import OBJECTS
from .scene import Look, Scene, Style

Step = Callable[[Scene, int], None]
IMAGE_SIZE = 48
NUM_MODES = 2


@dataclass(frozen=True)
class Attribute:
    """Steps of drawing that an attribute changes.

    Named colours belong to plain surfaces only, so that one attribute is
    decidable: whatever keeps the surface plain is ``neutral``.
    """

    warp: Step | None = None
    edge: Step | None = None
    paint: Step | None = None
    finish: Step | None = None
    neutral: bool = False


ATTRIBUTES: dict[str, Attribute] = {name: Attribute() for name in NAMED_COLORS}
ATTRIBUTES |= {
    name: Attribute(paint=getattr(surface, name))
    for name in ('striped', 'dotted', 'checkered', 'netted', 'zigzag', 'speckled', 'shaded',
                 'shiny', 'burnt', 'snowy', 'mossy', 'rusty', 'cracked')
}
ATTRIBUTES |= {
    name: Attribute(edge=getattr(form, name)) for name in ('outlined', 'fuzzy', 'sliced')
}
ATTRIBUTES |= {
    name: Attribute(finish=getattr(form, name))
    for name in ('framed', 'blurry', 'glowing', 'shadowed', 'transparent', 'pixelated')
}
ATTRIBUTES |= {
    name: Attribute(warp=getattr(form, name), neutral=True)
    for name in ('small', 'huge', 'stretched', 'bent', 'melted')
}
ATTRIBUTES['broken'] = Attribute(warp=form.halves, edge=form.broken)


def draw_image(attribute: str, obj: str, seed: tuple[int | str, ...], look: Look,
               size: int = IMAGE_SIZE):
    """Draws one picture.

    Args:
        attribute (str): Name in ``ATTRIBUTES``.
        obj (str): Name in ``OBJECTS``.
        seed (tuple): Numbers and names; the same seed gives the same bytes.
        look (Look): Difficulty.
        size (int): Side in pixels.

    Returns:
        tuple: RGB image (size, size, 3) uint8, the attribute's mode and the
        object's mode.
    """
    draws = Draws(*seed)
    attr_mode, obj_mode = (int(draws.uniform() >= look.first_mode) for _ in range(2))
    scene = Scene(size, draws, look, Style(obj, look.tint))
    draw_object(scene, ATTRIBUTES[attribute], attribute, attr_mode, OBJECTS[obj][obj_mode])
    return scene.compose(), attr_mode, obj_mode


def draw_object(scene: Scene, spec: Attribute, name: str, mode: int, shape: Shape) -> None:
    """Runs the steps of one attribute on one shape."""
    if name in NAMED_COLORS:
        color = jitter(scene.draws, NAMED_COLORS[name][mode], 12)
    elif spec.neutral:
        color = jitter(scene.draws, scene.draws.choice(NEUTRAL_COLORS), 10)
    else:
        color = any_color(scene.draws)
    scene.fill(color)
    scene.frame()
    if spec.warp:
        spec.warp(scene, mode)
    scene.measure(shape)
    if spec.edge:
        spec.edge(scene, mode)
    if spec.paint:
        spec.paint(scene, mode)
    scene.cover()
    if spec.finish:
        spec.finish(scene, mode)
