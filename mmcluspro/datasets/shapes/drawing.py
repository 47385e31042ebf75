"""Draws one picture of a pair."""
import numpy as np
from numpy.typing import NDArray

from .attributes import ATTRIBUTES, changes
from .colors import NAMED_COLORS, NEUTRAL_COLORS, any_color, jitter
from .draws import Draws
from .geometry import Shape
from .objects import OBJECTS
from .partners import partner_modes
from .scene import Look, Scene, Style
from .third_looks import SHADES

IMAGE_SIZE = 48


def draw_image(attribute: str, obj: str, seed: tuple[int | str, ...], look: Look,
               size: int = IMAGE_SIZE) -> tuple[NDArray[np.uint8], int, int]:
    """Draws one picture.

    Args:
        attribute (str): Name in ``ATTRIBUTES``, or '' for a plain grey object.
        obj (str): Name in ``OBJECTS``.
        seed (tuple): Numbers and names; the same seed gives the same bytes.
        look (Look): Difficulty.
        size (int): Side in pixels.

    Returns:
        tuple: RGB image (size, size, 3) uint8, the attribute's mode and the
        object's mode.
    """
    draws = Draws(*seed)
    if look.partner is None:
        attr_mode, obj_mode = (int(draws.uniform() >= look.first_mode) for _ in range(2))
    else:
        attr_mode, obj_mode = partner_modes(draws, attribute, obj, look.partner)
    scene = Scene(size, draws, look, Style(obj, look.tint))
    draw_object(scene, attribute, attr_mode, OBJECTS[obj][obj_mode])
    return scene.compose(), attr_mode, obj_mode


def draw_object(scene: Scene, name: str, mode: int, shape: Shape) -> None:
    """Runs the steps of one attribute on one shape."""
    steps = changes(name, mode) if name else {}
    if name in NAMED_COLORS:
        shade = SHADES[name] if mode == 2 else NAMED_COLORS[name][mode]
        color = jitter(scene.draws, shade, scene.look.shade)
    elif not name or ATTRIBUTES[name].neutral:
        color = jitter(scene.draws, scene.draws.choice(NEUTRAL_COLORS), 10)
    else:
        color = any_color(scene.draws)
    scene.fill(color)
    scene.frame()
    if 'warp' in steps:
        steps['warp'](scene)
    scene.measure(shape)
    for step in ('edge', 'paint'):
        if step in steps:
            steps[step](scene)
    scene.cover()
    if 'finish' in steps:
        steps['finish'](scene)
