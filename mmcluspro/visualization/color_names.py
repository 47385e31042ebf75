"""Colours of classes: a class that is named after a colour has that colour."""
from __future__ import annotations

from collections.abc import Sequence

from matplotlib.colors import CSS4_COLORS, XKCD_COLORS, to_hex, to_rgb

from .style import MUTED

# Names of shops that xkcd's survey of colour names lacks, or has as something else.
MORE = {'multi': '#8c8c8c', 'nude': '#e3bc9a', 'skin': '#e8b998', 'coffee brown': '#6f4e37',
        'metallic': '#9aa0a6', 'steel': '#8d99a3', 'fluorescent green': '#08ff08',
        'off white': '#f2efe2', 'blond': '#e6c97a', 'blonde': '#e6c97a',
        'grey melange': '#a9a9a9'}


def named_color(name: str) -> str | None:
    """The colour that a name means, as '#rrggbb'; None for other words.

    Args:
        name (str): In any case, with spaces, hyphens or underscores.
    """
    words = ' '.join(name.lower().replace('_', ' ').replace('-', ' ').split())
    found = MORE.get(words) or XKCD_COLORS.get(f'xkcd:{words}') or CSS4_COLORS.get(
        words.replace(' ', ''))
    return None if found is None else to_hex(found)


def class_colors(names: Sequence[str]) -> list[str]:
    """A colour for each class: its own where at least half of the names are colours.

    Args:
        names (Sequence[str]): Classes of a legend.

    Returns:
        list[str]: '#rrggbb' each; other words get those of a palette that colour-blind readers
        tell apart.
    """
    own = [named_color(name) for name in names]
    if 2 * sum(color is not None for color in own) < len(names):
        own = [None] * len(names)
    rest = iter(MUTED * (len(names) // len(MUTED) + 1))
    return [next(rest) if color is None else color for color in own]


def edge_of(color: str) -> str:
    """A line around a mark, so that white and yellow show on white paper; none elsewhere."""
    red, green, blue = to_rgb(color)
    light = 0.299 * red + 0.587 * green + 0.114 * blue
    return '#555555' if light > 0.7 else color
