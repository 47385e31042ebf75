"""Random numbers, colours, signed distances and the scene that an object is drawn into.

Everything is the same on every machine and with every numpy. Only the raw output of a bit generator
is covered by numpy's stream guarantee (distributions are not), so all draws are made from raw
64-bit words; distances use only + - * / and sqrt, which IEEE rounds alike everywhere.
"""
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
T = TypeVar('T')


def seed_of(*parts: int | str) -> list[int]:
    """Words for a ``SeedSequence``: names by their bytes, numbers as they are."""
    words: list[int] = []
    for part in parts:
        data = part.encode() if isinstance(part, str) else int(part).to_bytes(8, 'little')
        words += [len(data), *data]
    return words


class Draws:
    """A stream of numbers for one seed.

    Args:
        parts (int | str): Any numbers and names that together are the seed.
    """

    def __init__(self, *parts: int | str) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seed_of(*parts)))

    def array(self, *shape: int) -> Array:
        """Uniform numbers in [0, 1) of the given shape."""
        raw = self._bits.random_raw(int(np.prod(shape)))
        return ((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """One uniform number in [low, high)."""
        return low + (high - low) * (self._bits.random_raw() >> 11) * 2.0**-53

    def integer(self, low: int, high: int) -> int:
        """One integer in [low, high)."""
        return low + int(self.uniform() * (high - low))

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.integer(0, len(items))]

    def permutation(self, count: int) -> NDArray[np.int64]:
        """The numbers 0 … count - 1 in random order."""
        return np.argsort(self.array(count), kind='stable')


def rotation(degrees: float) -> tuple[float, float]:
    """Cosine and sine, rounded: the C library's last bit differs by machine."""
    angle = math.radians(degrees)
    return round(math.cos(angle), 9), round(math.sin(angle), 9)


def triangle_wave(phase: Array) -> Array:
    """Wave of period 1 between 0 and 1, from exact arithmetic only."""
    return np.abs(2.0 * (phase - np.floor(phase)) - 1.0)


def value_noise(draws: Draws, x: Array, y: Array, cell: float) -> Array:
    """Smooth noise in [0, 1) with blobs of about ``cell`` units of x and y."""
    grid = draws.array(16, 16)
    gx, gy = x / cell, y / cell
    fx, fy = np.floor(gx), np.floor(gy)
    tx, ty = gx - fx, gy - fy
    i, j = fx.astype(np.int64) & 15, fy.astype(np.int64) & 15
    i2, j2 = (i + 1) & 15, (j + 1) & 15
    top = grid[j, i] * (1 - tx) + grid[j, i2] * tx
    return top * (1 - ty) + (grid[j2, i] * (1 - tx) + grid[j2, i2] * tx) * ty


Color = tuple[float, float, float]

NAMED_COLORS: dict[str, tuple[Color, Color]] = {
    'red': ((222, 32, 38), (112, 10, 22)),
    'orange': ((255, 150, 20), (200, 84, 10)),
    'yellow': ((252, 240, 70), (196, 160, 20)),
    'green': ((120, 222, 60), (18, 88, 36)),
    'turquoise': ((70, 228, 214), (10, 112, 112)),
    'blue': ((96, 170, 250), (18, 28, 128)),
    'purple': ((186, 132, 240), (84, 14, 128)),
    'pink': ((255, 170, 200), (240, 40, 150)),
    'brown': ((150, 92, 52), (78, 44, 24)),
    'black': ((22, 22, 26), (54, 50, 58)),
    'white': ((252, 252, 252), (224, 226, 236)),
}

# Fill of attributes that are not a colour but leave the surface plain.
NEUTRAL_COLORS: tuple[Color, ...] = (
    (150, 150, 156), (196, 188, 168), (118, 128, 140), (172, 168, 180))


def clamp(red: float, green: float, blue: float) -> Color:
    """The nearest colour there is."""
    return (min(255.0, max(0.0, red)), min(255.0, max(0.0, green)), min(255.0, max(0.0, blue)))


def jitter(draws: Draws, color: Color, amount: float) -> Color:
    """Moves each channel by up to ``amount``."""
    return clamp(*(c + draws.uniform(-amount, amount) for c in color))


def any_color(draws: Draws) -> Color:
    """Any shade of any named colour."""
    shades = NAMED_COLORS[draws.choice(tuple(NAMED_COLORS))]
    return jitter(draws, draws.choice(shades), 14)


def mix(first: Color, second: Color, share: float) -> Color:
    """``share`` of the second colour in the first."""
    red, green, blue = (a + (b - a) * share for a, b in zip(first, second))
    return red, green, blue


def luminance(color: Color) -> float:
    """Brightness in [0, 255]."""
    return 0.3 * color[0] + 0.59 * color[1] + 0.11 * color[2]


Shape = Callable[[Array, Array], Array]
Point = tuple[float, float]


def disc(cx: float, cy: float, r: float) -> Shape:
    """Round disc."""
    return lambda u, v: np.sqrt((u - cx)**2 + (v - cy)**2) - r


def oval(cx: float, cy: float, a: float, b: float) -> Shape:
    """Ellipse with half axes a and b (the distance is approximate)."""
    return lambda u, v: (np.sqrt(((u - cx) / a)**2 + ((v - cy) / b)**2) - 1.0) * min(a, b)


def box(cx: float, cy: float, a: float, b: float) -> Shape:
    """Rectangle with half sides a and b."""

    def distance(u: Array, v: Array) -> Array:
        du, dv = np.abs(u - cx) - a, np.abs(v - cy) - b
        outside = np.sqrt(np.maximum(du, 0)**2 + np.maximum(dv, 0)**2)
        return outside + np.minimum(np.maximum(du, dv), 0)

    return distance


def poly(*points: Point) -> Shape:
    """Polygon with the given corners."""

    def distance(u: Array, v: Array) -> Array:
        nearest = np.full(u.shape, 1e9)
        inside = np.zeros(u.shape, dtype=bool)
        for (x1, y1), (x2, y2) in zip(points, points[1:] + points[:1]):
            dx, dy = x2 - x1, y2 - y1
            t = np.clip(((u - x1) * dx + (v - y1) * dy) / (dx * dx + dy * dy), 0.0, 1.0)
            nearest = np.minimum(nearest, (u - x1 - t * dx)**2 + (v - y1 - t * dy)**2)
            if y1 != y2:
                inside ^= ((y1 > v) != (y2 > v)) & (u < (v - y1) * dx / dy + x1)
        root = np.sqrt(nearest)
        return np.where(inside, -root, root)

    return distance


def line(width: float, *points: Point) -> Shape:
    """Stroke of the given half width through the points, with round ends."""

    def distance(u: Array, v: Array) -> Array:
        nearest = np.full(u.shape, 1e9)
        for (x1, y1), (x2, y2) in zip(points, points[1:]):
            dx, dy = x2 - x1, y2 - y1
            t = np.clip(((u - x1) * dx + (v - y1) * dy) / (dx * dx + dy * dy), 0.0, 1.0)
            nearest = np.minimum(nearest, (u - x1 - t * dx)**2 + (v - y1 - t * dy)**2)
        return np.sqrt(nearest) - width

    return distance


def ring_points(count: int, radius: float, start: float = -90.0) -> list[Point]:
    """``count`` points on a circle."""
    turns = [rotation(start + 360.0 * i / count) for i in range(count)]
    return [(radius * c, radius * s) for c, s in turns]


def star(count: int, inner: float, outer: float = 1.0) -> Shape:
    """Star with ``count`` points."""
    tips = ring_points(count, outer)
    dents = ring_points(count, inner, -90.0 + 180.0 / count)
    return poly(*[point for pair in zip(tips, dents) for point in pair])


def regular(count: int, radius: float = 0.95) -> Shape:
    """Regular polygon."""
    return poly(*ring_points(count, radius))


def join(*shapes: Shape) -> Shape:
    """Union."""

    def distance(u: Array, v: Array) -> Array:
        result = shapes[0](u, v)
        for shape in shapes[1:]:
            result = np.minimum(result, shape(u, v))
        return result

    return distance


def cut(shape: Shape, *holes: Shape) -> Shape:
    """The first shape without the others."""

    def distance(u: Array, v: Array) -> Array:
        result = shape(u, v)
        for hole in holes:
            result = np.maximum(result, -hole(u, v))
        return result

    return distance


def meet(*shapes: Shape) -> Shape:
    """Intersection."""

    def distance(u: Array, v: Array) -> Array:
        result = shapes[0](u, v)
        for shape in shapes[1:]:
            result = np.maximum(result, shape(u, v))
        return result

    return distance


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
