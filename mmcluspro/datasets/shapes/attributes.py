"""The attributes: what each does to a scene, in which step, in which mode.

The third look of an attribute is a function here, named as the attribute; versions from v2 on use
it. It takes the same step of drawing as the attribute's two modes in ``looks``.
"""
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from . import looks
from .draw import (
    NAMED_COLORS,
    Array,
    Color,
    Scene,
    box,
    coverage,
    luminance,
    oval,
    triangle_wave,
    value_noise,
)
from .looks import BLACK, WHITE, along, contrasting, sharp, shift, soften

SHADES: dict[str, Color] = {
    'red': (244, 104, 92),
    'orange': (255, 192, 128),
    'yellow': (255, 250, 176),
    'green': (112, 132, 34),
    'turquoise': (168, 240, 236),
    'blue': (34, 84, 232),
    'purple': (156, 50, 150),
    'pink': (255, 212, 218),
    'brown': (190, 140, 90),
    'black': (16, 24, 60),
    'white': (250, 244, 222),
}


def around(x: Array, y: Array) -> Array:
    """Position around the origin in [-1, 1] without trigonometry: x over |x| + |y|."""
    return x / (np.abs(x) + np.abs(y) + 1e-9)


# Surface -------------------------------------------------------------------------------------


def striped(scene: Scene) -> None:
    """Rings around the middle."""
    reach = np.sqrt(scene.u**2 + scene.v**2)
    wave = triangle_wave(reach / (0.5 * scene.style.pitch) + scene.draws.uniform())
    scene.blend(contrasting(scene), sharp(wave, 0.5, 0.35))


def dotted(scene: Scene) -> None:
    """Hollow dots."""
    pitch = 0.66 * scene.style.pitch
    s, t = along(scene, 20) / pitch + scene.draws.uniform(), along(scene, 110) / pitch
    radius = np.sqrt((s - np.floor(s) - 0.5)**2 + (t - np.floor(t) - 0.5)**2)
    scene.blend(contrasting(scene), 1 - sharp(np.abs(radius - 0.3), 0.11, 0.1))


def checkered(scene: Scene) -> None:
    """Fields of a dartboard."""
    reach = np.sqrt(scene.u**2 + scene.v**2) / (0.42 * scene.style.pitch)
    odd = (np.floor(reach) + (scene.u > 0) + (scene.v > 0)).astype(np.int64) & 1
    scene.blend(contrasting(scene), odd.astype(np.float64))


def netted(scene: Scene) -> None:
    """A spider's web."""
    rings = triangle_wave((np.abs(scene.u) + np.abs(scene.v)) / (0.42 * scene.style.pitch))
    spokes = np.minimum(np.minimum(np.abs(scene.u), np.abs(scene.v)),
                        np.abs(np.abs(scene.u) - np.abs(scene.v)) * 0.7)
    share = np.maximum(sharp(rings, 0.8, 0.2), 1 - sharp(spokes, 0.04, 0.05))
    scene.blend(contrasting(scene), share)


def zigzag(scene: Scene) -> None:
    """Thin upright lines with long teeth."""
    teeth = triangle_wave(along(scene, 90) / 0.7) * 0.5
    wave = triangle_wave((along(scene, 0) + teeth) / 0.8)
    scene.blend(contrasting(scene), sharp(wave, 0.74, 0.25))


def speckled(scene: Scene) -> None:
    """Grain that is dense below and thins out upwards."""
    noise = value_noise(scene.draws, scene.x, scene.y, 1.7)
    scene.blend(contrasting(scene), sharp(noise, 0.58 - 0.35 * scene.v, 0.1))


def shaded(scene: Scene) -> None:
    """Fades from a middle line to both sides."""
    scene.blend(contrasting(scene), np.abs(along(scene, 0)) * 1.4 - 0.1)


def shiny(scene: Scene) -> None:
    """Two sparkling glints."""
    for u, v in ((-0.3, -0.3), (0.3, 0.25)):
        du, dv = np.abs(scene.u - u), np.abs(scene.v - v)
        scene.blend(WHITE, 1.5 - 6 * np.sqrt(du * dv) - 2.2 * (du + dv))


def burnt(scene: Scene) -> None:
    """Holes burnt into it, with a glowing rim."""
    noise = value_noise(scene.draws, scene.x, scene.y, 5.5)
    scene.blend((226.0, 92.0, 16.0), (noise - 0.44) * 14)
    scene.blend((20.0, 14.0, 12.0), (noise - 0.56) * 14)


def snowy(scene: Scene) -> None:
    """Stands in a white drift."""
    noise = value_noise(scene.draws, scene.x, scene.y, 5.0)
    scene.blend(WHITE, scene.v * 3 - 0.2 + (noise - 0.5) * 2)


def mossy(scene: Scene) -> None:
    """Green strands that hang from above."""
    noise = value_noise(scene.draws, scene.x * 2, scene.y * 0.3, 4.0)
    scene.blend((52.0, 104.0, 34.0), -scene.v * 2 + (noise - 0.4) * 4)


def rusty(scene: Scene) -> None:
    """Eaten from the edge."""
    noise = value_noise(scene.draws, scene.x, scene.y, 3.0)
    scene.blend((190.0, 96.0, 40.0), 2.0 + scene.d * 0.5 + (noise - 0.5) * 2.4)


def cracked(scene: Scene) -> None:
    """Rays of a blow beside the middle."""
    u, v = scene.u - 0.2 * scene.style.side, scene.v + 0.15
    rays = np.abs(triangle_wave(around(u, v) * 1.5 + 0.2) - 0.5) * np.sqrt(u * u + v * v)
    scene.blend(BLACK if luminance(scene.color) > 90 else WHITE, (0.1 - rays) * 16)


# Frame and edge ------------------------------------------------------------------------------


def small(scene: Scene) -> None:
    """Tiny, in a lower corner."""
    half = scene.size / 2
    scene.scale *= scene.look.shrink
    scene.center = [half * (1 + 0.42 * scene.flip), half * 1.42]
    scene.frame()


def huge(scene: Scene) -> None:
    """So large that the upper corner of the picture cuts it."""
    half = scene.size / 2
    scene.scale = half * 1.15
    scene.center = [half * (1 + 0.35 * scene.flip), half * 0.65]
    scene.frame()


def stretched(scene: Scene) -> None:
    """Pulled askew."""
    scene.frame()
    scene.u = (scene.u + 0.9 * scene.style.side * scene.v) * 0.9


def bent(scene: Scene) -> None:
    """Folded at a corner."""
    scene.v = scene.v + 1.1 * scene.style.side * (np.abs(scene.u) - 0.45)


def outlined(scene: Scene) -> None:
    """Two thin lines, one inside the other."""
    scene.d = np.minimum(np.abs(scene.d) - 0.7, np.abs(scene.d + 3.2) - 0.6)


def broken_apart(scene: Scene) -> None:
    """Moves the four quarters away from the middle; :func:`broken` cuts the gaps."""
    scene.u = scene.u - np.where(scene.u > 0, 0.2, -0.2)
    scene.v = scene.v - np.where(scene.v > 0, 0.2, -0.2)


def broken(scene: Scene) -> None:
    """Fallen into four quarters."""
    scene.frame()
    jag = (value_noise(scene.draws, scene.x, scene.y, 2.5) - 0.5) * 3
    gap = np.minimum(np.abs(scene.u), np.abs(scene.v)) * scene.scale
    scene.d = np.maximum(scene.d, 0.2 * scene.scale + jag * 0.5 - gap)


def fuzzy(scene: Scene) -> None:
    """Spines all around."""
    x, y = scene.x - scene.center[0], scene.y - scene.center[1]
    scene.d = scene.d - (triangle_wave(around(x, y) * 7) - 0.3) * 6


def sliced(scene: Scene) -> None:
    """Cut by two slanted gaps."""
    wave = triangle_wave((scene.u + scene.v) * 0.8)
    scene.d = np.maximum(scene.d, (0.3 - wave) * 0.6 * scene.scale)


def melted_down(scene: Scene) -> None:
    """Sinks; :func:`melted` adds the puddle."""
    scene.v = scene.v * 1.35 - 0.1


def melted(scene: Scene) -> None:
    """Stands in its own puddle."""
    scene.d = np.minimum(scene.d, oval(0, 0.7, 1.05, 0.24)(scene.u, scene.v / 1.35) * scene.scale)


# Finish --------------------------------------------------------------------------------------


def framed(scene: Scene) -> None:
    """Hangs in a picture frame."""
    half = scene.size / 2
    edge = np.abs(box(half, half, half * 0.86, half * 0.86)(scene.x, scene.y)) - 1.6
    frame = BLACK if luminance(scene.back_color) > 128 else WHITE
    scene.back = scene.back + (np.asarray(frame) - scene.back) * coverage(edge)[..., None]


def blurry(scene: Scene) -> None:
    """Seen double."""
    layer = np.concatenate([scene.rgb * scene.alpha[..., None], scene.alpha[..., None]], axis=2)
    step = 5
    moved = [np.stack([shift(layer[..., i], sign * step // 2, sign * step) for i in range(4)],
                      axis=2) for sign in (-1, 1)]
    layer = soften(soften((moved[0] + moved[1]) * 0.5, 2, 0), 2, 1)
    scene.alpha = layer[..., 3]
    scene.rgb = layer[..., :3] / np.maximum(scene.alpha, 1e-3)[..., None]


def glowing(scene: Scene) -> None:
    """White hot inside, with a halo of its own colour in the dark."""
    fade = np.clip(0.85 - np.maximum(scene.d, 0) / (0.16 * scene.size), 0, 1)
    scene.back = scene.back * 0.3
    scene.back = scene.back + (np.asarray(scene.color) - scene.back) * fade[..., None]
    scene.blend(WHITE, -scene.d * 0.4)


def shadowed(scene: Scene) -> None:
    """A dark pool under its foot."""
    pool = oval(0, 1.0, 0.95, 0.24)(scene.u, scene.v) * scene.scale
    scene.back = scene.back * (1 - 0.75 * coverage(pool, 3.0)[..., None])


def transparent(scene: Scene) -> None:
    """Clear in the middle."""
    reach = np.sqrt(scene.u**2 + scene.v**2)
    scene.alpha = scene.alpha * np.clip(reach * 1.3 - 0.25, 0.05, 1)


def pixelated(scene: Scene) -> None:
    """Tall bricks of 3 by 8 pixels."""
    rows = (np.arange(scene.size) // 8) * 8 + 4
    cols = np.minimum((np.arange(scene.size) // 3) * 3 + 1, scene.size - 1)
    grid = np.ix_(rows, cols)
    scene.alpha = (scene.alpha[grid] > 0.5).astype(np.float64)
    shade = value_noise(scene.draws, scene.x, scene.y, 3.0)[grid]
    scene.blend(contrasting(scene), shade * 0.7)


Step = Callable[[Scene, int], None]
Change = Callable[[Scene], None]


@dataclass(frozen=True)
class Attribute:
    """Steps of drawing that an attribute changes in its modes 0 and 1.

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
    name: Attribute(paint=getattr(looks, name))
    for name in ('striped', 'dotted', 'checkered', 'netted', 'zigzag', 'speckled', 'shaded',
                 'shiny', 'burnt', 'snowy', 'mossy', 'rusty', 'cracked')
}
ATTRIBUTES |= {
    name: Attribute(edge=getattr(looks, name)) for name in ('outlined', 'fuzzy', 'sliced')
}
ATTRIBUTES |= {
    name: Attribute(finish=getattr(looks, name))
    for name in ('framed', 'blurry', 'glowing', 'shadowed', 'transparent', 'pixelated')
}
ATTRIBUTES |= {
    name: Attribute(warp=getattr(looks, name), neutral=True)
    for name in ('small', 'huge', 'stretched', 'bent', 'melted')
}
ATTRIBUTES['broken'] = Attribute(warp=looks.halves, edge=looks.broken)


STEPS = ('warp', 'edge', 'paint', 'finish')
_THIRD: dict[str, dict[str, Change]] = {
    name: {step: globals()[name] for step in STEPS if getattr(spec, step)}
    for name, spec in ATTRIBUTES.items()
}
_THIRD['broken'] = dict(warp=broken_apart, edge=broken)
_THIRD['melted'] = dict(warp=melted_down, edge=melted)


def changes(name: str, mode: int) -> dict[str, Change]:
    """Effect of an attribute in a mode, by drawing step."""
    if mode == 2:
        return _THIRD[name]
    spec = ATTRIBUTES[name]
    return {step: partial(change, mode=mode) for step in STEPS if (change := getattr(spec, step))}
