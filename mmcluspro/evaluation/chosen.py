"""Values that validation chose for each world, and how a checkpoint stores them."""
from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple

from .calibration import Calibration

PREFERENCES = ('seen', 'balanced', 'unseen')


class Chosen(NamedTuple):
    """Values that validation chose for a world; None for those that it did not choose.

    Attributes:
        bias (float): Best one of the standard protocol, in the space of the bias.
        threshold (float): Feasibility above which unseen pairs stay, open world only.
        temperature (float): See :class:`Calibration`.
        seen_bias (float): See :class:`Calibration`.
        prefer_seen (float): The seen bias for a user to whom seen pairs matter more.
        prefer_unseen (float): The same for unseen pairs.
    """

    bias: float | None = None
    threshold: float | None = None
    temperature: float | None = None
    seen_bias: float | None = None
    prefer_seen: float | None = None
    prefer_unseen: float | None = None

    @property
    def calibration(self) -> Calibration | None:
        """Temperature and seen bias, None unless both were chosen."""
        if self.temperature is None or self.seen_bias is None:
            return None
        return Calibration(self.temperature, self.seen_bias)

    def preferring(self, prefer: str = 'balanced') -> Calibration | None:
        """The calibration with another seen bias, None where validation chose none.

        Args:
            prefer (str): 'balanced': :attr:`calibration`; 'seen' or 'unseen'. Defaults to
                'balanced'.
        """
        if prefer not in PREFERENCES:
            raise ValueError(f'prefer must be one of {PREFERENCES}, got {prefer!r}.')
        found = self.calibration
        if found is None or prefer == 'balanced':
            return found
        bias = self.prefer_seen if prefer == 'seen' else self.prefer_unseen
        return None if bias is None else found._replace(seen_bias=bias)


def read_chosen(meta: Mapping[str, Any]) -> Mapping[str, Chosen]:
    """Reads the values that validation chose, by world, from the ``meta`` of a checkpoint.

    Args:
        meta (Mapping): Its field ``calibration`` holds numbers by name, by 'closed' and 'open'.
    """
    worlds = meta.get('calibration') or {}
    return MappingProxyType({
        world: Chosen(**{name: None if values.get(name) is None else float(values[name])
                         for name in Chosen._fields})
        for world, values in worlds.items()})


def chosen_for(meta: Mapping[str, Any], world: str) -> Chosen:
    """Values that validation chose for one world; all None if there are none."""
    return read_chosen(meta).get(world, Chosen())


def asked_calibration(meta: Mapping[str, Any], world: str, prefer: str = 'balanced',
                      seen_bias: float | None = None) -> Calibration | None:
    """The calibration that a user asked for, by a preference or by a seen bias.

    Args:
        meta (Mapping): Of a checkpoint.
        world (str): 'closed' or 'open'.
        prefer (str): As in :meth:`Chosen.preferring`. Defaults to 'balanced'.
        seen_bias (float, optional): Is subtracted from the log scores of seen pairs. Defaults to
            None: that of ``prefer``.

    Returns:
        Calibration | None: None where validation chose nothing and nothing was asked for.
    """
    chosen = chosen_for(meta, world)
    if seen_bias is not None:
        if prefer != 'balanced':
            raise ValueError('Give either prefer or seen_bias, not both.')
        if not isfinite(seen_bias):
            raise ValueError(f'seen_bias must be a finite number, got {seen_bias!r}.')
        return (chosen.calibration or Calibration())._replace(seen_bias=float(seen_bias))
    found = chosen.preferring(prefer)
    if found is None and prefer != 'balanced':
        raise ValueError(
            f'The checkpoint holds no seen bias for prefer={prefer!r} in the {world} world: '
            'best_*.pth of a training with validation by this version does. Give a number with '
            '--seen-bias X (seen_bias=X) instead: 0 favours seen pairs, 1 divides their scores by '
            '2.7, and so on.')
    return found


def chosen_meta(chosen: Mapping[str, Chosen]) -> dict[str, dict[str, float | None]]:
    """The inverse of :func:`read_chosen`: plain data for ``meta.calibration``."""
    return {world: values._asdict() for world, values in chosen.items()}
