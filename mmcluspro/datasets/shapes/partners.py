"""The look of a pair: a broken key is not broken in the same way as a broken star.

Each attribute divides the objects into three groups of its own, one for each of its looks, and
each object the attributes into two. The groups are fixed by the names.
"""
from functools import cache

from .attributes import ATTRIBUTES
from .draws import Draws
from .objects import OBJECTS

ATTR_MODES, OBJ_MODES = 3, 2
_SMALL = ('red', 'green', 'blue', 'yellow', 'striped', 'dotted', 'outlined', 'blurry', 'broken',
          'small', 'burnt', 'glowing')
# The attributes of the small versions first: there, too, all groups have the same size.
_ATTRIBUTES = (*_SMALL, *(name for name in ATTRIBUTES if name not in _SMALL))


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
            groups('object', obj, _ATTRIBUTES, OBJ_MODES)[attribute])


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
