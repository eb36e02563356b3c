"""One measured number of candidate and champion side by side, as the page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.evaluation.evaluation_result import Interval
from tasks.gate_report.gate_charts import range_svg
from tasks.gate_report.gate_text import minus, number_text, points_text, range_text, share_text

Section = dict[str, Any]
KINDS = ("candidate", "champion")


@dataclass(frozen=True)
class Measure:
    """A number, its interval and what it was counted from. Shares are shown in percent."""

    value: float | None
    interval: Interval | None = None
    count: str = ""
    share: bool = True

    def cell(self) -> Section:
        """The number, its interval and its counts as text."""
        if self.share:
            told, between = share_text(self.value), range_text(self.interval, 100, 1)
        else:
            told, between = number_text(self.value, 2), range_text(self.interval, 1, 2)
        return {"value": told, "range": between, "count": self.count}


def change_text(ours: Measure, theirs: Measure) -> str:
    """The candidate's number minus the champion's: in points, or as it is."""
    change = minus(ours.value, theirs.value)
    if change is None:
        return ""
    return points_text(change) if ours.share else f"{change:+.2f}"


def range_chart(measures: Sequence[Measure], about: str) -> str:
    """Both with their intervals, from 0 to 1 or to what is needed; nothing where neither has a number."""
    rows = [
        (kind, one.value, one.interval)
        for kind, one in zip(KINDS, measures, strict=False)
        if one.value is not None and one.value >= 0
    ]
    high = max([1.0, *(value for _, value, _ in rows), *(bounds.high for _, _, bounds in rows if bounds)])
    return range_svg(rows, high, about) if rows else ""
