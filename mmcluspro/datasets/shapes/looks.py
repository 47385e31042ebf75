"""The first two looks of the attributes: some paint the surface, some change the form."""
import numpy as np

from .draw import (
    Array,
    Color,
    Scene,
    any_color,
    coverage,
    luminance,
    mix,
    rotation,
    triangle_wave,
    value_noise,
)

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


def soften(image: Array, steps: int, axis: int) -> Array:
    """Blurs with [1 2 1] / 4 along an axis, ``steps`` times, edges repeated."""
    for _ in range(steps):
        pad = [(0, 0)] * image.ndim
        pad[axis] = (1, 1)
        wide = np.pad(image, pad, mode='edge')
        low, high = [slice(None)] * image.ndim, [slice(None)] * image.ndim
        low[axis], high[axis] = slice(0, -2), slice(2, None)
        image = 0.25 * wide[tuple(low)] + 0.5 * image + 0.25 * wide[tuple(high)]
    return image


def shift(image: Array, dy: int, dx: int) -> Array:
    """Moves an image (H, W) down and to the right; what comes in is zero."""
    high, wide = image.shape
    moved = np.zeros_like(image)
    moved[max(dy, 0):high + min(dy, 0), max(dx, 0):wide + min(dx, 0)] = image[
        max(-dy, 0):high + min(-dy, 0), max(-dx, 0):wide + min(-dx, 0)]
    return moved


# Frame ---------------------------------------------------------------------------------------


def small(scene: Scene, mode: int) -> None:
    """A tiny object alone, or one on a pale plate."""
    scene.scale *= scene.look.shrink
    scene.frame()
    if mode == 1:
        reach = np.sqrt(scene.u**2 + scene.v**2) - 2.0
        plate = mix(scene.back_color, WHITE, 0.55)
        share = coverage(reach * scene.scale)[..., None]
        scene.back = scene.back + (np.asarray(plate) - scene.back) * share


def huge(scene: Scene, mode: int) -> None:
    """So large that the picture's side (or its lower edge) cuts it."""
    half = scene.size / 2
    scene.scale = half * 1.15
    shift = half * 0.45 * scene.draws.choice((-1.0, 1.0))
    scene.center = [half + (shift if mode == 0 else 0.0), half + (abs(shift) if mode == 1 else 0.0)]
    scene.frame()


def stretched(scene: Scene, mode: int) -> None:
    """Pulled wide or pulled tall."""
    scene.stretch = [(1.25, 0.42), (0.42, 1.25)][mode]  # type: ignore[assignment]
    scene.angle *= 0.4
    scene.frame()


def bent(scene: Scene, mode: int) -> None:
    """Curved like a banana, or in a wave."""
    if mode == 0:
        scene.v = scene.v + 0.6 * scene.style.side * (scene.u**2 - 0.3)
    else:
        scene.u = scene.u + 0.5 * (triangle_wave(scene.v * 0.9 + 0.25) - 0.5)


# Edge ----------------------------------------------------------------------------------------


def outlined(scene: Scene, mode: int) -> None:
    """Only a line along the contour: a thin one, or a thick broken one."""
    if mode == 0:
        scene.d = np.abs(scene.d + 0.4) - 0.9
    else:
        thick = np.abs(scene.d + 1.0) - 1.5
        gaps = triangle_wave((scene.u + scene.v * scene.style.side) * 1.4)
        scene.d = np.maximum(thick, (0.32 - gaps) * 6)


def broken(scene: Scene, mode: int) -> None:
    """Torn into two halves that lie apart, or with bites taken out."""
    size, draws = scene.size, scene.draws
    if mode == 0:
        cos, sin = rotation(draws.uniform(-25, 25) + (90 if scene.style.side > 0 else 0))
        depth = (scene.x - scene.center[0]) * cos + (scene.y - scene.center[1]) * sin
        jag = (value_noise(draws, scene.x, scene.y, 2.5) - 0.5) * 4
        scene.d = np.maximum(scene.d, (0.13 * scene.scale + 0.6) - np.abs(depth + jag))
    else:
        rim = np.flatnonzero((scene.d < 0) & (scene.d > -2.5))
        for _ in range(2 if len(rim) else 0):
            # Bites start on the object's own rim, so that thin shapes lose a piece too.
            spot = int(rim[draws.integer(0, len(rim))])
            away = np.sqrt((scene.x - spot % size - 0.5)**2 + (scene.y - spot // size - 0.5)**2)
            jag = (value_noise(draws, scene.x, scene.y, 2.0) - 0.5) * 3
            scene.d = np.maximum(scene.d, 0.33 * scene.scale + jag - away)


def halves(scene: Scene, mode: int) -> None:
    """Shifts one side along the tear, so that the two halves do not match."""
    if mode == 0:
        across = scene.u if scene.style.side < 0 else scene.v
        slip = np.where(across > 0, 0.22, -0.22)
        if scene.style.side < 0:
            scene.v = scene.v + slip
        else:
            scene.u = scene.u + slip


def fuzzy(scene: Scene, mode: int) -> None:
    """Hairy edge: fine short hairs or coarse tufts."""
    noise = value_noise(scene.draws, scene.x, scene.y, (1.3, 2.8)[mode])
    scene.d = scene.d + (noise - 0.6) * (6.0, 10.0)[mode]


def sliced(scene: Scene, mode: int) -> None:
    """Cut by gaps: several parallel ones, or two that cross."""
    if mode == 0:
        wave = triangle_wave(scene.v * 1.6 + 0.5)
        scene.d = np.maximum(scene.d, (0.36 - wave) * 8)
    else:
        gap = np.minimum(np.abs(scene.u - scene.v), np.abs(scene.u + scene.v)) * 0.7
        scene.d = np.maximum(scene.d, (0.13 - gap) * scene.scale)


def melted(scene: Scene, mode: int) -> None:
    """Drips in many thin strands, or sags as one mass."""
    fall = np.maximum(scene.v + 0.2, 0)
    if mode == 0:
        drip = value_noise(scene.draws, scene.x, scene.y * 0.01, 2.5)
        scene.v = scene.v - fall * (drip - 0.1) * 0.9
    else:
        scene.v = scene.v + 0.45
        scene.u = scene.u / (1 + 0.9 * fall)
        scene.v = scene.v * 1.5 - 0.3


# Finish --------------------------------------------------------------------------------------


def framed(scene: Scene, mode: int) -> None:
    """A border round the surface: a thin dark one, or a wide light one."""
    width = (1.6, 2.6)[mode]
    scene.alpha = coverage(scene.d - width)
    scene.blend((BLACK, WHITE)[mode], coverage(-scene.d))


def blurry(scene: Scene, mode: int) -> None:
    """Out of focus, or smeared by motion."""
    layer = np.concatenate([scene.rgb * scene.alpha[..., None], scene.alpha[..., None]], axis=2)
    if mode == 0:
        layer = soften(soften(layer, 14, 0), 14, 1)
    else:
        axis = 0 if scene.style.side > 0 else 1
        layer = soften(layer, 60, axis)
    scene.alpha = layer[..., 3]
    scene.rgb = layer[..., :3] / np.maximum(scene.alpha, 1e-3)[..., None]


def glowing(scene: Scene, mode: int) -> None:
    """A warm halo around it, or rays of light."""
    color: Color = ((255.0, 246.0, 170.0), (200.0, 250.0, 255.0))[mode]
    fade = np.clip(1 - np.maximum(scene.d, 0) / (0.28 * scene.size), 0, 1)
    if mode == 1:
        x, y = scene.x - scene.center[0], scene.y - scene.center[1]
        # Position around the centre without trigonometry: x over |x| + |y|.
        turn = x / (np.abs(x) + np.abs(y) + 1e-9)
        fade = np.sqrt(fade) * np.clip(triangle_wave(turn * 3 + 0.2) * 3 - 1.2, 0, 1)
    scene.back = scene.back * 0.7
    scene.back = scene.back + (np.asarray(color) - scene.back) * fade[..., None]


def shadowed(scene: Scene, mode: int) -> None:
    """A dark copy behind it, or a long shadow thrown on the ground."""
    hidden = np.zeros_like(scene.alpha)
    side = int(scene.style.side)
    steps = ((5, 4),) if mode == 0 else tuple((i, i // 3) for i in range(2, 20))
    for dx, dy in steps:
        hidden = np.maximum(hidden, shift(scene.alpha, dy, side * dx))
    scene.back = scene.back * (1 - (0.75, 0.6)[mode] * hidden[..., None])


def transparent(scene: Scene, mode: int) -> None:
    """Glass-like all over, or fading away to one side."""
    if mode == 0:
        edge = coverage(np.abs(scene.d + 0.6) - 0.6)
        scene.alpha = np.maximum(scene.alpha * 0.3, edge * 0.75)
    else:
        scene.alpha = scene.alpha * np.clip(0.55 - scene.style.side * scene.u * 0.8, 0.05, 1)


def pixelated(scene: Scene, mode: int) -> None:
    """Square blocks of 4 pixels, or flat bricks of 8 by 3."""
    high, wide = ((4, 4), (3, 8))[mode]
    rows = (np.arange(scene.size) // high) * high + high // 2
    cols = (np.arange(scene.size) // wide) * wide + wide // 2
    grid = np.ix_(np.minimum(rows, scene.size - 1), np.minimum(cols, scene.size - 1))
    scene.alpha = (scene.alpha[grid] > 0.5).astype(np.float64)
    shade = value_noise(scene.draws, scene.x, scene.y, 3.0)[grid]
    scene.blend(contrasting(scene), shade * 0.7)
