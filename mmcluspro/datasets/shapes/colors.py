"""Colours: each named one has two shades, its two modes."""

from .draws import Draws

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
