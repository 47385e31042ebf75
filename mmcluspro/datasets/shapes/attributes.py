"""The attributes: what each does to a scene, in which step, in which mode."""
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mmcluspro.datasets.shapes import form, surface, third_looks

from .colors import NAMED_COLORS
from .scene import Scene

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


STEPS = ('warp', 'edge', 'paint', 'finish')
_THIRD: dict[str, dict[str, Change]] = {
    name: {step: getattr(third_looks, name) for step in STEPS if getattr(spec, step)}
    for name, spec in ATTRIBUTES.items()
}
_THIRD['broken'] = dict(warp=third_looks.broken_apart, edge=third_looks.broken)
_THIRD['melted'] = dict(warp=third_looks.melted_down, edge=third_looks.melted)


def changes(name: str, mode: int) -> dict[str, Change]:
    """Effect of an attribute in a mode, by drawing step."""
    if mode == 2:
        return _THIRD[name]
    spec = ATTRIBUTES[name]
    return {step: partial(change, mode=mode) for step in STEPS if (change := getattr(spec, step))}
