"""Charts of the data report as inline SVG, and heat maps as small PNGs: no script, no outside resource.

Text inside a chart is numbers only; names stand in the page's own text, where any script and length is laid out well.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt
import pandas as pd

from serving.annotate import class_colour
from tasks.reporting.drift_text import number_text
from tasks.reporting.measures import Counts

SPLIT_COLOURS = {"train": "#2b6ca3", "val": "#d9822b", "test": "#2f8f6b"}
OTHER_COLOUR = "#2b6ca3"
BRIGHTEST = 170
"""Luminance that a dot on white may have."""
WIDTH, HEIGHT = 320, 150
_LEFT, _BOTTOM, _TOP = 6, 22, 8
_MOST_TICKS = 6

MAP_CELLS = 32
"""Cells of a heat map each way."""
SCATTER_POINTS = 1500
_SCATTER_PX = 380
_MARGIN_PX = 44

Box = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One histogram in a chart: its colour, counts per bin, and whether its area is filled."""

    name: str
    colour: str
    counts: Counts
    filled: bool = False


def class_ink(class_id: int) -> str:
    """The colour that a class has in the pictures, darker where it would fade on white.

    >>> class_ink(0), class_ink(3)
    ('#e69f00', '#bfb635')
    """
    red, green, blue = class_colour(class_id)
    scale = min(1.0, BRIGHTEST / (0.299 * red + 0.587 * green + 0.114 * blue))
    return "#" + "".join(f"{round(part * scale):02x}" for part in (red, green, blue))


def histogram_svg(curves: Sequence[Curve], edges: Sequence[float]) -> str:
    """Histograms over the same bins, each as shares of its own total, so that unequal splits can be compared."""
    first, last = _used_bins(curves)
    shares = [(curve, curve.counts[first:last] / (curve.counts.sum() or 1)) for curve in curves]
    highest = max((float(share.max()) for _, share in shares if len(share)), default=0) or 1
    drawn = "".join(_curve(curve, share / highest) for curve, share in shares)
    return _svg(WIDTH, HEIGHT, drawn + _bin_axis(edges[first : last + 1]))


def _used_bins(curves: Sequence[Curve]) -> tuple[int, int]:
    """The bins from the first to the last that holds anything, one more each way."""
    total = sum((curve.counts for curve in curves), np.zeros(len(curves[0].counts)))
    held = np.flatnonzero(total)
    if not len(held):
        return 0, len(total)
    return max(0, int(held[0]) - 1), min(len(total), int(held[-1]) + 2)


def _curve(curve: Curve, heights: npt.NDArray[np.float64]) -> str:
    step = (WIDTH - 2 * _LEFT) / max(1, len(heights))
    floor, room = HEIGHT - _BOTTOM, HEIGHT - _BOTTOM - _TOP
    points = f"M{_LEFT} {floor}"
    for number, height in enumerate(heights):
        top = floor - room * float(height)
        points += f"L{_LEFT + number * step:.1f} {top:.1f}H{_LEFT + (number + 1) * step:.1f}"
    points += f"V{floor}"
    fill = f'fill="{curve.colour}" fill-opacity=".22"' if curve.filled else 'fill="none"'
    return f'<path d="{points}" {fill} stroke="{curve.colour}" stroke-width="1.6" stroke-linejoin="round"/>'


def _bin_axis(edges: Sequence[float]) -> str:
    """The base line with the values of some edges; the first stands to its right, the last to its left."""
    floor, bins = HEIGHT - _BOTTOM, len(edges) - 1
    step = (WIDTH - 2 * _LEFT) / max(1, bins)
    told = [number for number, edge in enumerate(edges) if _is_round(edge)]
    parts = [f'<path d="M{_LEFT} {floor}H{WIDTH - _LEFT}" stroke="#9aa5b1"/>']
    for number in told[:: max(1, math.ceil(len(told) / _MOST_TICKS))]:
        x = _LEFT + number * step
        anchor = "start" if number == 0 else "end" if number == bins else "middle"
        parts.append(f'<path d="M{x:.1f} {floor}v4" stroke="#9aa5b1"/>')
        parts.append(_text(x, HEIGHT - 5, number_text(edges[number]), anchor))
    return "".join(parts)


def _is_round(edge: float) -> bool:
    """Whether an edge makes a good label: a whole number or one part of a whole.

    >>> [_is_round(edge) for edge in (0, 64.0, 0.25, 90.5)]
    [True, True, True, False]
    """
    return float(edge).is_integer() or float(1 / edge).is_integer()


def scatter_svg(boxes: pd.DataFrame, colours: Mapping[int, str]) -> str:
    """Width against height of boxes in pixels, both axes logarithmic. At most SCATTER_POINTS, evenly taken."""
    known = boxes[["class_id", "width_px", "height_px"]].dropna()
    known = known[(known["width_px"] > 0) & (known["height_px"] > 0)]
    if known.empty:
        return ""
    sides = np.log2(known[["width_px", "height_px"]].to_numpy(dtype=np.float64))
    low, high = math.floor(float(sides.min())), math.ceil(float(sides.max()))
    high = max(high, low + 1)
    taken = np.unique(np.linspace(0, len(sides) - 1, SCATTER_POINTS).astype(int))
    place = (sides[taken] - low) / (high - low)
    numbers = known["class_id"].to_numpy(dtype=np.int64)[taken]
    return _svg(_SCATTER_PX, _SCATTER_PX, _scatter_axes(low, high) + _points(place, numbers, colours))


def _points(place: Box, numbers: npt.NDArray[np.int64], colours: Mapping[int, str]) -> str:
    """One path per colour: a dot is a line of no length with round ends."""
    room = _SCATTER_PX - _MARGIN_PX - 10
    dots: dict[str, list[str]] = {}
    for (across, up), number in zip(place, numbers, strict=True):
        x, y = _MARGIN_PX + room * across, 10 + room * (1 - up)
        dots.setdefault(colours.get(int(number), OTHER_COLOUR), []).append(f"M{x:.0f} {y:.0f}h0")
    style = 'stroke-width="5" stroke-linecap="round" stroke-opacity=".45" fill="none"'
    return "".join(f'<path d="{"".join(moves)}" stroke="{colour}" {style}/>' for colour, moves in dots.items())


def _scatter_axes(low: int, high: int) -> str:
    room, floor = _SCATTER_PX - _MARGIN_PX - 10, _SCATTER_PX - _MARGIN_PX + 0
    every = max(1, math.ceil((high - low) / 6))
    parts = []
    for power in range(low, high + 1, every):
        offset = room * (power - low) / (high - low)
        x, y = _MARGIN_PX + offset, 10 + room - offset
        parts.append(f'<path d="M{x:.1f} 10V{floor}M{_MARGIN_PX} {y:.1f}H{_MARGIN_PX + room}" stroke="#e3e7ec"/>')
        parts.append(_text(x, floor + 16, number_text(2.0**power), "middle"))
        parts.append(_text(_MARGIN_PX - 6, y + 4, number_text(2.0**power), "end"))
    parts.append(_text(_MARGIN_PX + room / 2, _SCATTER_PX - 8, "width, pixels", "middle"))
    turned = f'transform="rotate(-90 12 {10 + room / 2:.0f})"'
    parts.append(_text(12, 10 + room / 2, "height, pixels", "middle", turned))
    return "".join(parts)


def coverage(boxes_cxcywh: Box, cells: int = MAP_CELLS) -> npt.NDArray[np.float64]:
    """How many of the boxes (n, 4), fractions as centre and size, lie over each cell (row, column) of the picture.

    >>> coverage(np.array([[0.25, 0.5, 0.5, 1.0]]), 2).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    half = boxes_cxcywh[:, 2:] / 2
    first = np.clip(np.floor((boxes_cxcywh[:, :2] - half) * cells + 1e-6), 0, cells - 1).astype(int)
    last = np.clip(np.ceil((boxes_cxcywh[:, :2] + half) * cells - 1e-6), first + 1, cells).astype(int)
    steps = np.zeros((cells + 1, cells + 1))
    for (x, y), sign in (((first[:, 0], first[:, 1]), 1), ((last[:, 0], last[:, 1]), 1),
                         ((first[:, 0], last[:, 1]), -1), ((last[:, 0], first[:, 1]), -1)):  # fmt: skip
        np.add.at(steps, (y, x), sign)
    return np.asarray(steps.cumsum(axis=0).cumsum(axis=1)[:cells, :cells], dtype=np.float64)


def heat_map_png(counts: npt.NDArray[np.float64]) -> str:
    """A map as a data URI: white where nothing is, dark blue at the highest count."""
    share = counts / (counts.max() or 1)
    light, dark = np.array([250.0, 251.0, 252.0]), np.array([12.0, 60.0, 120.0])
    colours = light + (dark - light) * np.sqrt(share)[..., None]
    _, data = cv2.imencode(".png", colours[..., ::-1].round().astype(np.uint8))
    return "data:image/png;base64," + base64.b64encode(data.tobytes()).decode("ascii")


def _svg(width: int, height: int, content: str) -> str:
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">{content}</svg>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{text}</text>'
