"""How the gate report writes numbers: shares in percent, intervals beside their number, a dash for what is missing."""

from __future__ import annotations

import math

from tasks.evaluation.evaluation_result import Interval

MISSING = "-"


def share_text(value: float | None) -> str:
    """A share in percent.

    >>> share_text(0.0345), share_text(None), share_text(float("nan"))
    ('3.5 %', '-', 'nan')
    """
    return f"{100 * value:.1f} %" if value is not None and math.isfinite(value) else number_text(value, 1)


def number_text(value: float | None, digits: int = 3) -> str:
    """A number with so many digits; what is not finite keeps its name."""
    return MISSING if value is None else f"{value:.{digits}f}"


def range_text(bounds: Interval | None, scale: float, digits: int) -> str:
    """An interval, multiplied by `scale`; nothing where there is none.

    >>> range_text(Interval(low=0.012, high=0.1), 100, 1), range_text(None, 1, 2)
    ('1.2 to 10.0', '')
    """
    return f"{scale * bounds.low:.{digits}f} to {scale * bounds.high:.{digits}f}" if bounds else ""


def points_text(difference: float | None) -> str:
    """A difference of shares in points.

    >>> points_text(-0.0123), points_text(None)
    ('-1.2', '-')
    """
    return MISSING if difference is None else f"{100 * difference:+.1f}"


def minus(one: float | None, other: float | None) -> float | None:
    """The difference; None where one of both is missing."""
    return None if one is None or other is None else one - other
