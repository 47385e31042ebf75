"""Named sets of pictures, and the drawing of one picture of a pair.

A version's name fixes the split and the look for good; change a number here and it needs a new
name.
"""
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .attributes import ATTRIBUTES, SHADES, changes
from .draw import NAMED_COLORS, NEUTRAL_COLORS, Draws, Look, Scene, Shape, Style, any_color, jitter
from .objects import OBJECTS

ATTR_MODES, OBJ_MODES = 3, 2
_SMALL = ('red', 'green', 'blue', 'yellow', 'striped', 'dotted', 'outlined', 'blurry', 'broken',
          'small', 'burnt', 'glowing')
# The attributes of the small versions first: there, too, all groups have the same size.
_IN_ORDER = (*_SMALL, *(name for name in ATTRIBUTES if name not in _SMALL))


@cache
def groups(kind: str, name: str, partners: tuple[str, ...], count: int) -> dict[str, int]:
    """Divides the partners of a primitive into groups.

    Each run of ``count`` partners has one in each group, so that all groups of a
    version that takes the first partners have the same size.

    Args:
        kind (str): 'attribute' or 'object': what ``name`` is.
        name (str): The primitive.
        partners (tuple[str]): Names of all objects or attributes.
        count (int): Number of groups.

    Returns:
        dict[str, int]: Group by partner.
    """
    found: dict[str, int] = {}
    for start in range(0, len(partners), count):
        # The first number of the seed that leaves every mode of shapes-v2 a seen pair.
        order = Draws('partners 0', kind, name, start).permutation(count)
        found.update(zip(partners[start:start + count], order.tolist()))
    return found


def pair_modes(attribute: str, obj: str) -> tuple[int, int]:
    """The mode of an attribute on an object, and of the object under that attribute."""
    return (groups('attribute', attribute, tuple(OBJECTS), ATTR_MODES)[obj],
            groups('object', obj, _IN_ORDER, OBJ_MODES)[attribute])


def partner_modes(draws: Draws, attribute: str, obj: str, share: float) -> tuple[int, int]:
    """Modes of a picture's attribute and object.

    Args:
        draws (Draws): The picture's random numbers.
        attribute (str): Name of the attribute.
        obj (str): Name of the object.
        share (float): Probability that a mode is that of the partner's group; otherwise it is
            any.

    Returns:
        tuple[int, int]: Modes of attribute and object.
    """
    attr_mode, obj_mode = (
        mode if draws.uniform() < share else draws.integer(0, count)
        for mode, count in zip(pair_modes(attribute, obj), (ATTR_MODES, OBJ_MODES)))
    return attr_mode, obj_mode


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


Pair = tuple[str, str]

_ATTRIBUTES = ('red', 'green', 'blue', 'yellow', 'striped', 'dotted', 'outlined', 'blurry',
               'broken', 'small', 'burnt', 'glowing')
_OBJECTS = ('circle', 'star', 'heart', 'moon', 'arrow', 'cross', 'tree', 'fish', 'house',
            'flower', 'bolt', 'key')


@dataclass(frozen=True)
class Version:
    """Definition of a version.

    Args:
        split (str): Name of the split; versions that share it share the pairs.
        attributes (tuple[str, ...]): Attributes.
        objects (tuple[str, ...]): Objects.
        num_pairs (int): Pairs that exist.
        train (tuple[float, ...]): Shares of the training pairs that have
            1, 2, … pictures, the commonest pairs the most.
        val (tuple[int, int]): Validation pictures a seen and an unseen pair.
        test (tuple[int, int]): Test pictures a seen and an unseen pair.
        eval_seen (float): Share of the seen pairs that validation and test show.
        look (Look): Difficulty.
    """

    split: str
    attributes: tuple[str, ...] = _ATTRIBUTES
    objects: tuple[str, ...] = _OBJECTS
    num_pairs: int = len(_ATTRIBUTES) * len(_OBJECTS)
    train: tuple[float, ...] = (0.0, ) * 19 + (1.0, )
    val: tuple[int, int] = (3, 9)
    test: tuple[int, int] = (6, 18)
    eval_seen: float = 1.0
    look: Look = field(default_factory=Look)


# Objects are larger and turned less than in v1, where they were the bottleneck; paint may be faint.
_V2 = Look(clutter=2, noise=12.0, contrast=40.0, turn=6.0, scales=(0.8, 0.92), tint=12.0,
           haze=0.25, veil=0.05, shade=20.0, faint=0.8, shrink=0.75, partner=0.85)
VERSIONS: dict[str, Version] = {
    'shapes-easy-v1': Version('shapes-v1', look=Look(
        clutter=0, noise=4, contrast=80, turn=5, scales=(0.8, 0.88), tint=8, haze=0, veil=0,
        saturation=0.2)),
    'shapes-v1': Version('shapes-v1'),
    'shapes-hard-v1': Version('shapes-v1', look=Look(
        clutter=5, noise=12, contrast=40, turn=35, scales=(0.55, 0.8), tint=22, haze=0.25,
        veil=0.3, saturation=0.7)),
    'shapes-large-v1': Version(
        'shapes-large-v1', tuple(ATTRIBUTES), tuple(OBJECTS), 1400,
        train=(0.30, 0.25, 0.20, 0.13, 0.12), val=(2, 2), test=(2, 2), eval_seen=0.34),
    'shapes-v2': Version('shapes-v1', train=(0.0, ) * 9 + (1.0, ), val=(6, 18), look=_V2),
    'shapes-large-v2': Version(
        'shapes-large-v1', tuple(ATTRIBUTES), tuple(OBJECTS), 1400,
        train=(0.0, 0.20, 0.20, 0.20, 0.10, 0.10, 0.10, 0.10), val=(2, 2), test=(2, 2),
        eval_seen=0.34,
        look=Look(clutter=2, noise=6.0, turn=6.0, scales=(0.8, 0.92), tint=12.0, haze=0.1,
                  veil=0.05, shrink=0.65, partner=0.85)),
}


def get_version(name: str) -> Version:
    """The version of that name."""
    if name not in VERSIONS:
        raise ValueError(f'version must be one of {sorted(VERSIONS)}, got {name!r}.')
    return VERSIONS[name]


@cache
def split_pairs(name: str) -> dict[str, tuple[Pair, ...]]:
    """Pairs of names by their part in a version.

    Returns:
        dict: 'seen' (about 60%), 'val' and 'test' (the unseen pairs of each,
        about 20%). Every primitive keeps at least 40% of its pairs seen, so it
        occurs in training.
    """
    version = get_version(name)
    draws = Draws('split', version.split)
    every = [(a, o) for a in version.attributes for o in version.objects]
    order = draws.permutation(len(every))[:version.num_pairs]
    pairs = [every[i] for i in sorted(order)]
    total: dict[str, int] = {}
    for pair in pairs:
        for primitive in pair:
            total[primitive] = total.get(primitive, 0) + 1
    held: list[Pair] = []
    count = dict.fromkeys(total, 0)
    wanted = round(0.4 * len(pairs))
    for i in draws.permutation(len(pairs)):
        pair = pairs[i]
        if len(held) < wanted and all(count[p] + 1 <= 0.6 * total[p] for p in pair):
            held.append(pair)
            for primitive in pair:
                count[primitive] += 1
    unseen = set(held)
    return {
        'seen': tuple(pair for pair in pairs if pair not in unseen),
        'val': tuple(sorted(held[::2])),
        'test': tuple(sorted(held[1::2])),
    }


@cache
def plan(name: str) -> tuple[tuple[str, str, str, int], ...]:
    """All pictures of a version: (phase, attribute, object, number in the pair)."""
    version, split = get_version(name), split_pairs(name)
    draws = Draws('plan', version.split)
    seen = split['seen']
    rows = [('train', *pair, i) for pair, n in zip(seen, _train_counts(name)) for i in range(n)]
    for phase, (old, new) in (('val', version.val), ('test', version.test)):
        shown = sorted(draws.permutation(len(seen))[:round(version.eval_seen * len(seen))])
        rows += [(phase, *seen[k], i) for k in shown for i in range(old)]
        rows += [(phase, *pair, i) for pair in split[phase] for i in range(new)]
    return tuple(rows)


def _train_counts(name: str) -> list[int]:
    """Pictures of each seen pair, more where both primitives are common."""
    version, seen = get_version(name), split_pairs(name)['seen']
    draws = Draws('counts', version.split)
    common = {p: u * u for p, u in zip((*version.attributes, *version.objects),
                                       draws.array(len(version.attributes) + len(version.objects)))}
    weight = np.array([common[a] * common[o] for a, o in seen]) * draws.array(len(seen))
    rank = np.argsort(np.argsort(weight, kind='stable'), kind='stable') / len(seen)
    edges = np.cumsum(version.train)
    return [int(n) + 1 for n in np.minimum(np.searchsorted(edges, rank + 1e-9), len(edges) - 1)]


def phase_lists(name: str) -> dict[str, list[Pair]]:
    """Pair lists as published data has them: 'val' and 'test' hold seen pairs too."""
    lists: dict[str, set[Pair]] = {'train': set(), 'val': set(), 'test': set()}
    for phase, attribute, obj, _ in plan(name):
        lists[phase].add((attribute, obj))
    return {phase: sorted(pairs) for phase, pairs in lists.items()}
