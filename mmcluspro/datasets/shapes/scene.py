"""One picture: background, clutter and an object that attributes can change.

The order is fixed: place, warp the frame, distance to the object, change the
edge, paint the surface, finish (blur, glow, …), compose over the background.
"""
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .colors import Color, any_color, clamp, jitter, luminance, mix
from .draws import Array, Draws, rotation, triangle_wave, value_noise
from .geometry import Shape, box, disc, line

GREY: Color = (150.0, 150.0, 150.0)


@dataclass(frozen=True)
class Look:
    """How hard a version's pictures are.

    Args:
        clutter (int): Largest number of distracting marks.
        noise (float): Amplitude of the sensor noise, grey levels.
        contrast (float): Smallest brightness step between object and background.
        turn (float): Largest rotation, degrees.
        scales (tuple[float, float]): Half width of the object, share of the image's half.
        tint (float): How far a colour moves from object to object.
        haze (float): Largest share of background colour mixed into the object.
        first_mode (float): Probability of mode 0 of attributes and objects, where
            the partner does not matter.
        veil (float): Probability that a mark lies over the object.
        saturation (float): Largest share of pure colour in the background.
        shade (float): How far a named colour moves from image to image.
        faint (float): Largest share by which paint is thinned.
        shrink (float): Scale of what is small.
        partner (float, optional): Share of the pictures whose modes come from the
            pair (:mod:`partners`); the others have any. None: two modes, drawn
            independently of the pair.
    """

    clutter: int = 3
    noise: float = 8.0
    contrast: float = 60.0
    turn: float = 12.0
    scales: tuple[float, float] = (0.72, 0.88)
    tint: float = 20.0
    haze: float = 0.15
    first_mode: float = 0.5
    veil: float = 0.15
    saturation: float = 0.35
    shade: float = 12.0
    faint: float = 0.0
    shrink: float = 0.5
    partner: float | None = None


class Style:
    """How an object changes its attributes; fixed by its name."""

    def __init__(self, name: str, tint: float) -> None:
        draws = Draws('style', name)
        self.tint = tuple(draws.uniform(-tint, tint) for _ in range(3))
        self.angle = draws.uniform(-30, 30)
        self.pitch = draws.uniform(0.8, 1.3)
        self.side = draws.choice((-1.0, 1.0))


class Scene:
    """Arrays of one picture while it is drawn.

    Args:
        size (int): Side in pixels.
        draws (Draws): The picture's random numbers.
        look (Look): Difficulty.
        style (Style): The object's influence on attributes.
    """

    def __init__(self, size: int, draws: Draws, look: Look, style: Style) -> None:
        self.size, self.draws, self.look, self.style = size, draws, look, style
        self.y, self.x = np.mgrid[0:size, 0:size] + 0.5
        self.scale = draws.uniform(*look.scales) * size / 2
        room = max(0.0, size / 2 - self.scale) * 0.9
        self.center = [size / 2 + draws.uniform(-room, room) for _ in range(2)]
        self.angle = draws.uniform(-look.turn, look.turn)
        self.flip = draws.choice((-1.0, 1.0))
        self.stretch = [draws.uniform(0.88, 1.12) for _ in range(2)]
        self.back_color = mix(GREY, any_color(draws), draws.uniform(0, look.saturation))
        self.back = background(self)
        self.color: Color = (128.0, 128.0, 128.0)
        self.d = self.alpha = np.zeros((size, size))
        self.rgb = np.zeros((size, size, 3))
        self.u = self.v = self.d
        self.strength = 1.0 - look.faint * draws.uniform() if look.faint else 1.0

    def frame(self) -> None:
        """Sets the object's coordinates u, v from centre, scale and angle."""
        cos, sin = rotation(self.angle)
        x, y = self.x - self.center[0], self.y - self.center[1]
        self.u = (x * cos + y * sin) / self.scale * self.flip / self.stretch[0]
        self.v = (y * cos - x * sin) / self.scale / self.stretch[1]

    def measure(self, shape: Shape) -> None:
        """Sets the distance to the object, in pixels."""
        self.d = shape(self.u, self.v) * self.scale

    def fill(self, color: Color) -> None:
        """Paints the whole surface, kept apart from the background's brightness."""
        self.color = clamp(*(c + t for c, t in zip(color, self.style.tint)))
        gap = luminance(self.color) - luminance(self.back_color)
        if abs(gap) < self.look.contrast:
            target = self.look.contrast * (-1.0 if luminance(self.color) > 128 else 1.0)
            self.back = np.clip(self.back + gap + target, 0, 255)
        self.rgb[:] = self.color

    def blend(self, color: Color, share: Array) -> None:
        """Mixes a colour into the surface where ``share`` (H, W) says so."""
        share = np.clip(share, 0, 1) * self.strength
        self.rgb += (np.asarray(color) - self.rgb) * share[..., None]

    def cover(self) -> None:
        """Sets alpha from the distance, antialiased over one pixel."""
        self.alpha = coverage(self.d)

    def compose(self) -> NDArray[np.uint8]:
        """Lays the object over the background and adds marks and noise."""
        draws, look = self.draws, self.look
        haze = draws.uniform(0, look.haze)
        layer = self.rgb + (np.asarray(self.back_color) - self.rgb) * haze
        image = self.back + (layer - self.back) * self.alpha[..., None]
        if draws.uniform() < look.veil:
            image = mark(self, image)
        noise = draws.uniform(0, look.noise)
        image = image + (draws.array(self.size, self.size, 3) - 0.5) * 2 * noise
        return np.floor(np.clip(image, 0, 255) + 0.5).astype(np.uint8)


def coverage(d: Array, width: float = 1.0) -> Array:
    """Share of a pixel inside: 1 well inside, 0 well outside."""
    return np.clip(0.5 - d / width, 0.0, 1.0)


def background(scene: Scene) -> Array:
    """Plain, sloping, cloudy or banded, with distracting marks (H, W, 3)."""
    draws, first = scene.draws, np.asarray(scene.back_color)
    second = np.asarray(jitter(draws, scene.back_color, 45))
    kind = draws.integer(0, 4)
    if kind == 0:
        share = np.zeros_like(scene.x)
    elif kind == 1:
        cos, sin = rotation(draws.uniform(0, 360))
        share = 0.5 + (cos * (scene.x / scene.size - 0.5) + sin * (scene.y / scene.size - 0.5))
    elif kind == 2:
        share = value_noise(draws, scene.x, scene.y, draws.uniform(5, 16))
    else:
        cos, sin = rotation(draws.uniform(0, 360))
        share = triangle_wave((cos * scene.x + sin * scene.y) / draws.uniform(6, 20))
    image = first + (second - first) * np.clip(share, 0, 1)[..., None]
    for _ in range(draws.integer(0, scene.look.clutter + 1)):
        image = mark(scene, image)
    return image


def mark(scene: Scene, image: Array) -> Array:
    """A small disc, bar or stroke of any colour somewhere in the picture."""
    draws, size = scene.draws, scene.size
    cx, cy = draws.uniform(0, size), draws.uniform(0, size)
    reach = draws.uniform(0.03, 0.09) * size
    shape: Shape
    kind = draws.integer(0, 3)
    if kind == 0:
        shape = disc(cx, cy, reach)
    elif kind == 1:
        shape = box(cx, cy, reach, reach * draws.uniform(0.3, 1.2))
    else:
        cos, sin = rotation(draws.uniform(0, 360))
        shape = line(reach * 0.25, (cx, cy), (cx + cos * 3 * reach, cy + sin * 3 * reach))
    color = mix(any_color(draws), scene.back_color, draws.uniform(0, 0.6))
    share = coverage(shape(scene.x, scene.y))[..., None]
    return image + (np.asarray(color) - image) * share
