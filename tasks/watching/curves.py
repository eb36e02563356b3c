"""Curves over the epochs of a training as one SVG: no script, no font or other resource from outside.

Prefect's pages keep an SVG only as a picture, so it travels as a data URI and brings its own white ground.
"""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.training.events import EpochDone

WIDTH, PANEL_HEIGHT = 720, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 150, 30, 34
MOST_POINTS = 240
"""Points of a line: two for each pixel would only make the picture heavy."""
TICKS = 5
USUAL_SHARE, USUAL_ROOM = 0.95, 1.5
"""A chart reaches as far above the value that this share of all values stays below."""
NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Line:
    """One curve: the metric, how it is called, its colour, and whether it is dashed."""

    metric: str
    name: str
    colour: str
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart. `top` is the end of its scale, None where the values decide."""

    title: str
    lines: tuple[Line, ...]
    top: float | None = None


QUALITY = Panel(
    "Validation by epoch",
    (
        Line("metrics/mAP50(B)", "mAP50", "#2b6ca3"),
        Line("metrics/mAP50-95(B)", "mAP50-95", "#2f8f6b"),
        Line("metrics/precision(B)", "precision", "#d9822b", dashed=True),
        Line("metrics/recall(B)", "recall", "#a3478f", dashed=True),
    ),
    top=1.0,
)
LOSS_COLOURS = ("#2b6ca3", "#d9822b", "#2f8f6b", "#a3478f", "#6b6f76")


def loss_panel(epochs: Sequence[EpochDone]) -> Panel:
    """The losses that the training reports, which its model and a teacher decide; those of validation are dashed."""
    names = {name: name.partition("/") for one in epochs for name in one.metrics if name.endswith("loss")}
    parts = sorted({(part, split) for split, _, part in names.values() if split in ("train", "val")})
    colours = dict(zip(dict(parts), itertools.cycle(LOSS_COLOURS), strict=False))
    return Panel(
        "Loss by epoch",
        tuple(
            Line(f"{split}/{part}", f"{part.removesuffix('_loss')}, {split}", colours[part], dashed=split == "val")
            for part, split in parts
        ),
    )


def curves_svg(epochs: Sequence[EpochDone], planned: int) -> str:
    """Validation figures above, losses below, against the epochs from the first one given to `planned`."""
    panels = [_panel(panel, epochs, planned) for panel in (QUALITY, loss_panel(epochs))]
    height = PANEL_HEIGHT * len(panels)
    placed = "".join(f'<g transform="translate(0 {PANEL_HEIGHT * at})">{one}</g>' for at, one in enumerate(panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="#1f2933"><rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f"{placed}</svg>"
    )


def svg_uri(svg: str) -> str:
    """The picture as an address that carries it.

    >>> svg_uri("<svg/>")
    'data:image/svg+xml;base64,PHN2Zy8+'
    """
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode("ascii")


def _panel(panel: Panel, epochs: Sequence[EpochDone], planned: int) -> str:
    drawn = [(line, points) for line in panel.lines if (points := _points(line.metric, epochs))]
    values = [value for _, points in drawn for _, value in points]
    ticks = tick_values(panel.top or shown_top(values))
    cut = f", cut above {ticks[-1]:g}" if max(values, default=0.0) > ticks[-1] else ""
    first, last = (epochs[0].epoch, max(planned, epochs[-1].epoch)) if epochs else (1, max(planned, 1))
    scale = _Scale(first, last, ticks[-1])
    parts = [f'<text x="{LEFT}" y="18" font-size="14" font-weight="bold">{panel.title}{cut}</text>']
    parts += [_rule(scale, value) for value in ticks]
    parts += [_epoch_mark(scale, epoch) for epoch in epoch_ticks(first, last)]
    for row, (line, points) in enumerate(drawn):
        parts += [_curve(scale, line, points), _key(row, line, points[-1][1])]
    return "".join(parts)


@dataclass(frozen=True)
class _Scale:
    """From epoch and value to pixels of a panel."""

    first: int
    last: int
    top: float

    def x(self, epoch: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (epoch - self.first) / max(1, self.last - self.first)

    def y(self, value: float) -> float:
        room = PANEL_HEIGHT - TOP - BOTTOM
        return TOP + room * (1 - min(value, self.top) / self.top)


def _points(metric: str, epochs: Sequence[EpochDone]) -> list[tuple[int, float]]:
    """(epoch, value) of the epochs that have a number for `metric`; long trainings are thinned, the last one stays."""
    known = [(one.epoch, one.metrics[metric]) for one in epochs if math.isfinite(one.metrics.get(metric, math.nan))]
    every = -(-len(known) // MOST_POINTS) or 1
    return known[::-1][::every][::-1]


def shown_top(values: Sequence[float]) -> float:
    """How far up a chart goes: a few values far above all others would press the rest flat, and are cut.

    >>> shown_top([2.0, 4.0]), shown_top([2.0] * 40 + [90.0])
    (4.0, 3.0)
    """
    highest = max(values, default=0.0) or 1.0
    usual = sorted(values)[int(len(values) * USUAL_SHARE)] if values else highest
    return min(highest, usual * USUAL_ROOM or highest)


def tick_values(highest: float) -> list[float]:
    """Round values from 0 to the first one that is not below `highest`.

    >>> tick_values(0.93), tick_values(3.2)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 1.0, 2.0, 3.0, 4.0])
    """
    wanted = highest / TICKS
    power = 10.0 ** math.floor(math.log10(wanted))
    step = next(nice * power for nice in NICE if nice * power >= wanted * 0.999)
    return [round(number * step, 10) for number in range(math.ceil(highest / step - 1e-9) + 1)]


def epoch_ticks(first: int, last: int) -> list[int]:
    """Epochs that are named on the axis, the first and the last among them.

    >>> epoch_ticks(1, 100), epoch_ticks(7, 9)
    ([1, 20, 40, 60, 80, 100], [7, 8, 9])
    """
    step = max(1, round(tick_values(float(last - first))[1])) if last > first else 1
    inner = [epoch for epoch in range(0, last, step) if epoch - first >= step / 2 and last - epoch >= step / 2]
    return sorted({first, last, *inner})


def _rule(scale: _Scale, value: float) -> str:
    y = scale.y(value)
    return (
        f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e3e7ec"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    )


def _epoch_mark(scale: _Scale, epoch: int) -> str:
    x, floor = scale.x(epoch), PANEL_HEIGHT - BOTTOM
    return (
        f'<path d="M{x:.1f} {floor}v5" stroke="#9aa5b1"/>'
        f'<text x="{x:.1f}" y="{floor + 18}" text-anchor="middle">{epoch}</text>'
    )


def _curve(scale: _Scale, line: Line, points: Sequence[tuple[int, float]]) -> str:
    moves = "".join(_moves(scale, points))
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    return (
        f'<path d="{moves}" fill="none" stroke="{line.colour}" stroke-width="2" stroke-linejoin="round" '
        f'stroke-linecap="round"{dash}/>'
    )


def _moves(scale: _Scale, points: Sequence[tuple[int, float]]) -> Iterator[str]:
    """A line from point to point; a single one is drawn as a dot."""
    for number, (epoch, value) in enumerate(points):
        yield f"{'L' if number else 'M'}{scale.x(epoch):.1f} {scale.y(value):.1f}"
    if len(points) == 1:
        yield "h0.1"


def _key(row: int, line: Line, latest: float) -> str:
    """The name of a curve and its latest value, right of the panel."""
    x, y = WIDTH - RIGHT + 14, TOP + 6 + 20 * row
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    return (
        f'<path d="M{x} {y}h22" stroke="{line.colour}" stroke-width="2"{dash}/>'
        f'<text x="{x + 28}" y="{y + 4}">{line.name} {latest:.3g}</text>'
    )
