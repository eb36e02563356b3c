"""The extents of shapes: what their boxes are. All units stay as given; angles are degrees, clockwise as seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

Extent = tuple[float, float, float, float]
"""left, top, right, bottom"""
Point = tuple[float, float]


def extent_of_points(points: Iterable[Point]) -> Extent:
    """The smallest upright box around points.

    >>> extent_of_points([(3, 1), (0, 4), (2, 2)])
    (0, 1, 3, 4)
    """
    xs, ys = zip(*points, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def turned_box(extent: Extent, degrees: float, pivot: Point | None = None) -> Extent:
    """The extent of a box that is turned around `pivot`, its centre by default.

    >>> tuple(round(value, 6) for value in turned_box((0, 0, 4, 2), 90))
    (1.0, -1.0, 3.0, 3.0)
    """
    left, top, right, bottom = extent
    if degrees % 360 == 0:
        return extent
    around = pivot or ((left + right) / 2, (top + bottom) / 2)
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return extent_of_points(_turned(corner, math.radians(degrees), around) for corner in corners)


def _turned(point: Point, radians: float, around: Point) -> Point:
    x, y = point[0] - around[0], point[1] - around[1]
    sine, cosine = math.sin(radians), math.cos(radians)
    return around[0] + x * cosine - y * sine, around[1] + x * sine + y * cosine


def ellipse_extent(centre: Point, radii: Point, degrees: float = 0.0) -> Extent:
    """The extent of an ellipse that is turned around its centre.

    >>> ellipse_extent((10, 10), (4, 2))
    (6.0, 8.0, 14.0, 12.0)
    >>> tuple(round(value, 6) for value in ellipse_extent((10, 10), (4, 2), 90))
    (8.0, 6.0, 12.0, 14.0)
    """
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    half_x = math.hypot(radii[0] * cosine, radii[1] * sine)
    half_y = math.hypot(radii[0] * sine, radii[1] * cosine)
    return centre[0] - half_x, centre[1] - half_y, centre[0] + half_x, centre[1] + half_y


def runs_extent(counts: Sequence[int], height: int) -> Extent | None:
    """The extent of a mask in COCO's runs: column by column, background first. None for a mask without pixels.

    >>> runs_extent([5, 2, 2, 2, 1], 4)  # a mask of 4 rows and 3 columns: rows 1 and 2 of columns 1 and 2
    (1, 1, 3, 3)
    """
    boxes = []
    position = 0
    for number, count in enumerate(counts):
        if number % 2 and count:
            first, last = position, position + count - 1
            same_column = first // height == last // height
            top, bottom = (first % height, last % height) if same_column else (0, height - 1)
            boxes.append((first // height, top, last // height + 1, bottom + 1))
        position += count
    if not boxes:
        return None
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def decode_counts(text: str) -> list[int]:
    """COCO's compressed runs: six-bit groups, lowest first; from the third run on as differences to the last but one.

    >>> decode_counts("52203")
    [5, 2, 2, 2, 5]
    """
    counts: list[int] = []
    value, shift = 0, 0
    for character in text:
        group = ord(character) - 48
        if not 0 <= group < 64:
            raise ValueError(f"{character!r} in the runs of a mask")
        value |= (group & 0x1F) << shift
        shift += 5
        if group & 0x20:
            continue
        if group & 0x10:
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
        value, shift = 0, 0
    if shift:
        raise ValueError("the runs of a mask are cut off")
    return counts
