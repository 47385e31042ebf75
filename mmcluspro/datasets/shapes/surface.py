"""Attributes that paint the object's surface: patterns, stains, light."""
import numpy as np

from .colors import Color, any_color, luminance, mix
from .draws import Array, rotation, triangle_wave, value_noise
from .scene import Scene

BLACK: Color = (16.0, 14.0, 14.0)
WHITE: Color = (250.0, 250.0, 252.0)


def contrasting(scene: Scene) -> Color:
    """A colour whose brightness is far from the surface's."""
    other = any_color(scene.draws)
    if abs(luminance(other) - luminance(scene.color)) < 70:
        other = mix(other, BLACK if luminance(scene.color) > 128 else WHITE, 0.7)
    return other


def along(scene: Scene, degrees: float) -> Array:
    """Coordinate in a direction of the object's frame, turned by its style."""
    cos, sin = rotation(degrees + scene.style.angle)
    return scene.u * cos + scene.v * sin


def sharp(wave: Array, threshold: float | Array, softness: float = 0.15) -> Array:
    """Step at a threshold, slightly soft so that it does not alias."""
    return np.clip((wave - threshold) / softness + 0.5, 0, 1)


def striped(scene: Scene, mode: int) -> None:
    """Broad stripes one way or narrow ones the other way."""
    pitch = (0.62, 0.36)[mode] * scene.style.pitch
    wave = triangle_wave(along(scene, (0, 90)[mode]) / pitch + scene.draws.uniform())
    scene.blend(contrasting(scene), sharp(wave, 0.5, (0.3, 0.5)[mode]))


def dotted(scene: Scene, mode: int) -> None:
    """Few large dots or many small ones."""
    pitch = (0.8, 0.42)[mode] * scene.style.pitch
    s, t = along(scene, 45 * mode) / pitch, along(scene, 45 * mode + 90) / pitch
    s, t = s + scene.draws.uniform(), t + scene.draws.uniform()
    radius = np.sqrt((s - np.floor(s) - 0.5)**2 + (t - np.floor(t) - 0.5)**2)
    scene.blend(contrasting(scene), 1 - sharp(radius, (0.32, 0.28)[mode], 0.12))


def checkered(scene: Scene, mode: int) -> None:
    """Upright coarse squares or fine diamonds."""
    pitch = (0.55, 0.33)[mode] * scene.style.pitch
    s, t = along(scene, 45 * mode) / pitch, along(scene, 45 * mode + 90) / pitch
    odd = (np.floor(s + scene.draws.uniform()) + np.floor(t)).astype(np.int64) & 1
    scene.blend(contrasting(scene), odd.astype(np.float64))


def netted(scene: Scene, mode: int) -> None:
    """Thin crossing lines: a square grid or a hexagon-like one of three families."""
    share = np.zeros_like(scene.u)
    for angle in ((0, 90), (30, 90, 150))[mode]:
        wave = triangle_wave(along(scene, angle) / ((0.5, 0.6)[mode] * scene.style.pitch))
        share = np.maximum(share, sharp(wave, 0.82, 0.2))
    scene.blend(contrasting(scene), share)


def zigzag(scene: Scene, mode: int) -> None:
    """Bands that run in sharp or in shallow wide teeth."""
    teeth = triangle_wave(along(scene, 0) / (0.5, 0.9)[mode]) * (0.4, 0.25)[mode]
    wave = triangle_wave((along(scene, 90) + teeth) / (0.6, 0.4)[mode])
    scene.blend(contrasting(scene), sharp(wave, 0.5, 0.3))


def speckled(scene: Scene, mode: int) -> None:
    """Fine dark-and-light grain or sparse coarse flecks."""
    noise = value_noise(scene.draws, scene.x, scene.y, (1.2, 2.6)[mode])
    scene.blend(contrasting(scene), sharp(noise, (0.55, 0.7)[mode], 0.1))


def shaded(scene: Scene, mode: int) -> None:
    """Fades into another colour from end to end, or from the middle outwards."""
    if mode == 0:
        share = 0.5 + along(scene, 60) * 0.6
    else:
        share = np.sqrt(scene.u**2 + scene.v**2)
    scene.blend(contrasting(scene), share)


def shiny(scene: Scene, mode: int) -> None:
    """A round highlight or a bright diagonal streak."""
    if mode == 0:
        spot = np.sqrt((scene.u + 0.25)**2 + (scene.v + 0.25)**2)
        scene.blend(WHITE, (0.5 - spot) * 3)
    else:
        scene.blend(WHITE, sharp(1 - np.abs(along(scene, 35)), 0.82, 0.2))


def burnt(scene: Scene, mode: int) -> None:
    """Charred from the lower end upwards, or all around the edge."""
    ragged = value_noise(scene.draws, scene.x, scene.y, 4.0)
    if mode == 0:
        share = (scene.v + scene.style.side * 0.25 * scene.u) * 2.2 + 0.2 + (ragged - 0.5) * 1.6
    else:
        share = 2.2 + scene.d * 0.55 + (ragged - 0.5) * 2.0
    scene.blend((30.0, 20.0, 14.0), share)


def snowy(scene: Scene, mode: int) -> None:
    """A white cap from above or white flakes all over."""
    noise = value_noise(scene.draws, scene.x, scene.y, (4.0, 3.0)[mode])
    share = -scene.v * 2.5 - 0.2 + (noise - 0.5) * 1.5 if mode == 0 else (noise - 0.62) * 8
    scene.blend(WHITE, share)


def mossy(scene: Scene, mode: int) -> None:
    """Green cushions in patches, or growing up from below."""
    noise = value_noise(scene.draws, scene.x, scene.y, 4.0)
    share = (noise - 0.5) * 8 if mode == 0 else scene.v * 2.5 + (noise - 0.5) * 2
    scene.blend(((70.0, 120.0, 30.0), (36.0, 84.0, 40.0))[mode], share)


def rusty(scene: Scene, mode: int) -> None:
    """Orange-brown blotches or streaks running down."""
    x = scene.x if mode == 0 else scene.x * 2.2
    y = scene.y if mode == 0 else scene.y * 0.4
    noise = value_noise(scene.draws, x, y, 5.0)
    scene.blend(((176.0, 84.0, 28.0), (130.0, 60.0, 26.0))[mode], (noise - 0.45) * 6)


def cracked(scene: Scene, mode: int) -> None:
    """Dark lines that wander one way, or a web of them."""
    cell = (9.0, 5.0)[mode]
    noise = value_noise(scene.draws, scene.x, scene.y, cell)
    share = 1 - np.abs(noise - 0.5) * (14.0, 9.0)[mode]
    if mode == 1:
        other = value_noise(scene.draws, scene.x, scene.y, cell)
        share = np.maximum(share, 1 - np.abs(other - 0.5) * 9)
    scene.blend(BLACK if luminance(scene.color) > 90 else WHITE, share * 2)
