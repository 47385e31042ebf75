"""What validation chose for each world, and how a checkpoint carries it."""
from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .calibration import Calibration


class Chosen(NamedTuple):
    """What validation chose for a world; None for what it did not look for.

    Attributes:
        bias (float): Best one of the standard protocol, in the space of the bias.
        threshold (float): Feasibility above which unseen pairs stay, open world only.
        temperature (float): See :class:`Calibration`.
        seen_bias (float): See :class:`Calibration`.
    """

    bias: float | None = None
    threshold: float | None = None
    temperature: float | None = None
    seen_bias: float | None = None

    @property
    def calibration(self) -> Calibration | None:
        """Temperature and seen bias, None unless both were chosen."""
        if self.temperature is None or self.seen_bias is None:
            return None
        return Calibration(self.temperature, self.seen_bias)


def read_chosen(meta: Mapping[str, Any]) -> Mapping[str, Chosen]:
    """What validation chose by world, from the ``meta`` of a checkpoint.

    Args:
        meta (Mapping): Its field ``calibration`` holds numbers by name, by 'closed' and 'open'.
    """
    worlds = meta.get('calibration') or {}
    return MappingProxyType({
        world: Chosen(**{name: None if values.get(name) is None else float(values[name])
                         for name in Chosen._fields})
        for world, values in worlds.items()})


def chosen_for(meta: Mapping[str, Any], world: str) -> Chosen:
    """What validation chose for one world, nothing where it chose nothing."""
    return read_chosen(meta).get(world, Chosen())


def chosen_meta(chosen: Mapping[str, Chosen]) -> dict[str, dict[str, float | None]]:
    """The inverse of :func:`read_chosen`: plain data for ``meta.calibration``."""
    return {world: values._asdict() for world, values in chosen.items()}
