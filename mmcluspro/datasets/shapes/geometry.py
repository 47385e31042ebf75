"""Shapes as signed distances: negative inside, in units of the object's frame.

The frame is [-1, 1]² with v pointing down. A shape is a function of two
coordinate arrays; only + - * / and sqrt are used, which IEEE rounds alike on
every machine.
"""
from collections.abc import Callable

import numpy as np

from .draws import Array, rotation

Shape = Callable[[Array, Array], Array]
Point = tuple[float, float]


def disc(cx: float, cy: float, r: float) -> Shape:
    """Round disc."""
    return lambda u, v: np.sqrt((u - cx)**2 + (v - cy)**2) - r


def oval(cx: float, cy: float, a: float, b: float) -> Shape:
    """Ellipse with half axes a and b (the distance is approximate)."""
    return lambda u, v: (np.sqrt(((u - cx) / a)**2 + ((v - cy) / b)**2) - 1.0) * min(a, b)


def box(cx: float, cy: float, a: float, b: float) -> Shape:
    """Rectangle with half sides a and b."""

    def distance(u: Array, v: Array) -> Array:
        du, dv = np.abs(u - cx) - a, np.abs(v - cy) - b
        outside = np.sqrt(np.maximum(du, 0)**2 + np.maximum(dv, 0)**2)
        return outside + np.minimum(np.maximum(du, dv), 0)

    return distance


def poly(*points: Point) -> Shape:
    """Polygon with the given corners."""

    def distance(u: Array, v: Array) -> Array:
        nearest = np.full(u.shape, 1e9)
        inside = np.zeros(u.shape, dtype=bool)
        for (x1, y1), (x2, y2) in zip(points, points[1:] + points[:1]):
            dx, dy = x2 - x1, y2 - y1
            t = np.clip(((u - x1) * dx + (v - y1) * dy) / (dx * dx + dy * dy), 0.0, 1.0)
            nearest = np.minimum(nearest, (u - x1 - t * dx)**2 + (v - y1 - t * dy)**2)
            if y1 != y2:
                inside ^= ((y1 > v) != (y2 > v)) & (u < (v - y1) * dx / dy + x1)
        root = np.sqrt(nearest)
        return np.where(inside, -root, root)

    return distance


def line(width: float, *points: Point) -> Shape:
    """Stroke of the given half width through the points, with round ends."""

    def distance(u: Array, v: Array) -> Array:
        nearest = np.full(u.shape, 1e9)
        for (x1, y1), (x2, y2) in zip(points, points[1:]):
            dx, dy = x2 - x1, y2 - y1
            t = np.clip(((u - x1) * dx + (v - y1) * dy) / (dx * dx + dy * dy), 0.0, 1.0)
            nearest = np.minimum(nearest, (u - x1 - t * dx)**2 + (v - y1 - t * dy)**2)
        return np.sqrt(nearest) - width

    return distance


def ring_points(count: int, radius: float, start: float = -90.0) -> list[Point]:
    """``count`` points on a circle."""
    turns = [rotation(start + 360.0 * i / count) for i in range(count)]
    return [(radius * c, radius * s) for c, s in turns]


def star(count: int, inner: float, outer: float = 1.0) -> Shape:
    """Star with ``count`` points."""
    tips = ring_points(count, outer)
    dents = ring_points(count, inner, -90.0 + 180.0 / count)
    return poly(*[point for pair in zip(tips, dents) for point in pair])


def regular(count: int, radius: float = 0.95) -> Shape:
    """Regular polygon."""
    return poly(*ring_points(count, radius))


def join(*shapes: Shape) -> Shape:
    """Union."""

    def distance(u: Array, v: Array) -> Array:
        result = shapes[0](u, v)
        for shape in shapes[1:]:
            result = np.minimum(result, shape(u, v))
        return result

    return distance


def cut(shape: Shape, *holes: Shape) -> Shape:
    """The first shape without the others."""

    def distance(u: Array, v: Array) -> Array:
        result = shape(u, v)
        for hole in holes:
            result = np.maximum(result, -hole(u, v))
        return result

    return distance


def meet(*shapes: Shape) -> Shape:
    """Intersection."""

    def distance(u: Array, v: Array) -> Array:
        result = shapes[0](u, v)
        for shape in shapes[1:]:
            result = np.maximum(result, shape(u, v))
        return result

    return distance
