"""Random numbers that are the same on every machine and with every numpy.

Only the raw output of a bit generator is covered by numpy's stream guarantee
(distributions are not), so everything is made here from raw 64-bit words.
"""
import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
T = TypeVar('T')


def seed_of(*parts: int | str) -> list[int]:
    """Words for a ``SeedSequence``: names by their bytes, numbers as they are."""
    words: list[int] = []
    for part in parts:
        data = part.encode() if isinstance(part, str) else int(part).to_bytes(8, 'little')
        words += [len(data), *data]
    return words


class Draws:
    """A stream of numbers for one seed.

    Args:
        parts (int | str): Any numbers and names that together are the seed.
    """

    def __init__(self, *parts: int | str) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seed_of(*parts)))

    def array(self, *shape: int) -> Array:
        """Uniform numbers in [0, 1) of the given shape."""
        raw = self._bits.random_raw(int(np.prod(shape)))
        return ((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """One uniform number in [low, high)."""
        return low + (high - low) * (self._bits.random_raw() >> 11) * 2.0**-53

    def integer(self, low: int, high: int) -> int:
        """One integer in [low, high)."""
        return low + int(self.uniform() * (high - low))

    def choice(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.integer(0, len(items))]

    def permutation(self, count: int) -> NDArray[np.int64]:
        """The numbers 0 … count - 1 in random order."""
        return np.argsort(self.array(count), kind='stable')


def rotation(degrees: float) -> tuple[float, float]:
    """Cosine and sine, rounded: the C library's last bit differs by machine."""
    angle = math.radians(degrees)
    return round(math.cos(angle), 9), round(math.sin(angle), 9)


def triangle_wave(phase: Array) -> Array:
    """Wave of period 1 between 0 and 1, from exact arithmetic only."""
    return np.abs(2.0 * (phase - np.floor(phase)) - 1.0)


def value_noise(draws: Draws, x: Array, y: Array, cell: float) -> Array:
    """Smooth noise in [0, 1) with blobs of about ``cell`` units of x and y."""
    grid = draws.array(16, 16)
    gx, gy = x / cell, y / cell
    fx, fy = np.floor(gx), np.floor(gy)
    tx, ty = gx - fx, gy - fy
    i, j = fx.astype(np.int64) & 15, fy.astype(np.int64) & 15
    i2, j2 = (i + 1) & 15, (j + 1) & 15
    top = grid[j, i] * (1 - tx) + grid[j, i2] * tx
    return top * (1 - ty) + (grid[j2, i] * (1 - tx) + grid[j2, i2] * tx) * ty
