"""Charts of the gate report as inline SVG. Colours come from the page's style sheet, and so follow light and dark.

The candidate's lines are solid and the champion's dashed: to be told apart without colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from markupsafe import escape

from tasks.evaluation.evaluation_result import Interval

SIZE = 216
_LEFT, _BOTTOM, _TOP, _RIGHT = 42, 34, 8, 6
RANGE_WH = (150, 22)
DIFFERENCE_WH = (460, 96)


@dataclass(frozen=True, eq=False)
class Line:
    """A curve in parts of 1 both ways. `kind` is "candidate" or "champion"."""

    kind: str
    x: npt.ArrayLike
    y: npt.ArrayLike


def curve_svg(lines: Sequence[Line], x_name: str, y_name: str, point: tuple[float, float] | None, about: str) -> str:
    """Curves from 0 to 1 both ways, and the operating point as a ring."""
    drawn = _grid(x_name, y_name) + "".join(_path(line) for line in lines)
    if point is not None:
        drawn += f'<circle class="point" cx="{_x(point[0]):.1f}" cy="{_y(point[1]):.1f}" r="4.5"/>'
    return _svg((SIZE, SIZE), drawn, about)


def _x(value: float) -> float:
    return _LEFT + (SIZE - _LEFT - _RIGHT) * value


def _y(value: float) -> float:
    return _TOP + (SIZE - _TOP - _BOTTOM) * (1 - value)


def _path(line: Line) -> str:
    """Points in a row on one height are left out but for the first and the last."""
    points = [(_x(float(x)), _y(float(y))) for x, y in zip(_floats(line.x), _floats(line.y), strict=True)]
    kept = [
        point
        for before, point, after in zip([None, *points], points, [*points[1:], None], strict=False)
        if before is None or after is None or not before[1] == point[1] == after[1]
    ]
    moves = "L".join(f"{x:.1f} {y:.1f}" for x, y in kept)
    return f'<path class="{line.kind}" d="M{moves}"/>'


def _floats(values: npt.ArrayLike) -> list[float]:
    return [float(value) for value in np.asarray(values, np.float64)]


def _grid(x_name: str, y_name: str) -> str:
    parts = []
    for value in (0, 0.5, 1):
        parts.append(f'<path class="grid" d="M{_x(value):.1f} {_y(1):.1f}V{_y(0):.1f}M{_x(0):.1f} {_y(value):.1f}')
        parts.append(f'H{_x(1):.1f}"/>')
        parts.append(text(_x(value), SIZE - 18, f"{value:g}", "middle"))
        parts.append(text(_LEFT - 5, _y(value) + 4, f"{value:g}", "end"))
    parts.append(text(_x(0.5), SIZE - 4, x_name, "middle"))
    turned = f'transform="rotate(-90 12 {_y(0.5):.0f})"'
    return "".join(parts) + text(12, _y(0.5), y_name, "middle", turned)


def range_svg(rows: Sequence[tuple[str, float | None, Interval | None]], high: float, about: str) -> str:
    """A dot with its interval per row, from 0 to `high`; `rows` are kind, value, interval."""
    width, height = RANGE_WH
    room, whole = width - 12, high or 1.0
    drawn = f'<path class="grid" d="M6 {height - 1}H{width - 6}"/>'
    for number, (kind, value, bounds) in enumerate(rows):
        y = height * (number + 0.5) / len(rows)
        if bounds is not None:
            low, top = (6 + room * min(1.0, max(0.0, side / whole)) for side in (bounds.low, bounds.high))
            drawn += f'<path class="{kind}" d="M{low:.1f} {y:.1f}H{top:.1f}"/>'
        if value is not None:
            drawn += f'<circle class="{kind}" cx="{6 + room * min(1.0, value / whole):.1f}" cy="{y:.1f}" r="3.2"/>'
    return _svg(RANGE_WH, drawn, about)


def difference_svg(difference: float, bounds: Sequence[tuple[str, float]], margin: float, about: str) -> str:
    """The measured difference as a dot, down to each lower bound as a line; upright lines at 0 and at `-margin`."""
    width, height = DIFFERENCE_WH
    low = min(-margin, difference, *(bound for _, bound in bounds))
    high = max(0.0, difference)
    spread = (high - low) or 1.0
    low, high = low - 0.16 * spread, high + 0.08 * spread

    def place(value: float) -> float:
        return 8 + (width - 16) * (value - low) / (high - low)

    floor = height - 22
    drawn = f'<path class="grid" d="M8 {floor}H{width - 8}"/>'
    for value, kind in ((0.0, "zero"), (-margin, "margin")):
        drawn += f'<path class="{kind}" d="M{place(value):.1f} 4V{floor}"/>'
        drawn += text(place(value), height - 6, f"{100 * value:+.1f}" if value else "0", "middle")
    for number, (name, bound) in enumerate(bounds):
        y = 20 + number * 26
        start, end = place(bound), place(difference)
        drawn += f'<path class="candidate" d="M{start:.1f} {y}H{end:.1f}M{start:.1f} {y - 5}v10"/>'
        drawn += f'<circle class="candidate" cx="{end:.1f}" cy="{y}" r="4"/>'
        drawn += text(start - 6, y + 4, name, "end")
    return _svg(DIFFERENCE_WH, drawn, about)


def text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    """Words that need no escaping: numbers and our own."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{words}</text>'


def _svg(wh: tuple[int, int], drawn: str, about: str) -> str:
    width, height = wh
    head = f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"'
    return f'{head} aria-label="{escape(about)}">{drawn}</svg>'
