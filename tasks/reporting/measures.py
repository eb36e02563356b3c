"""What is measured of a dataset's pictures and boxes, in fixed bins, and how far two distributions lie apart.

The bins are the same for every dataset and revision: numbers and charts can be compared across them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Values = npt.NDArray[np.float64]
Counts = npt.NDArray[np.float64]

NOTABLE_DISTANCE = 0.1
"""Jensen-Shannon distance from which a change is told; below it, charts of the two look alike."""
CHANCE_SIGMAS = 3.0
"""Few values differ by chance alone: a change is told where the G-test lies so many deviations above its mean."""


@dataclass(frozen=True)
class Measure:
    """One number of every picture or box. What lies outside the edges counts to the first or last bin."""

    name: str
    unit: str
    of: str
    """pictures or boxes."""
    edges: tuple[float, ...]
    values: Callable[[pd.DataFrame], Values]
    """From the table of pictures or of boxes; NaN where it is not known."""

    def histogram(self, table: pd.DataFrame) -> Counts:
        """How many rows of `table` fall into each bin."""
        return bin_counts(self.known(table), self.edges)

    def known(self, table: pd.DataFrame) -> Values:
        """The values that are known."""
        values = self.values(table)
        return values[np.isfinite(values)]


def _column(name: str) -> Callable[[pd.DataFrame], Values]:
    return lambda table: _numbers(table, name)


def _numbers(table: pd.DataFrame, name: str) -> Values:
    return np.asarray(pd.to_numeric(table[name]), dtype=np.float64)


def _side(table: pd.DataFrame) -> Values:
    """The side of a square of the same area, pixels."""
    sides: Values = np.sqrt(_numbers(table, "width_px") * _numbers(table, "height_px"))
    return sides


def _shape(table: pd.DataFrame) -> Values:
    height = _numbers(table, "height_px")
    unknown: Values = np.full(len(height), np.nan)
    return np.divide(_numbers(table, "width_px"), height, out=unknown, where=height > 0)


def _steps(first: int, last: int, per_doubling: int) -> tuple[float, ...]:
    """Edges from 2**first to 2**last.

    >>> _steps(0, 2, 1)
    (1.0, 2.0, 4.0)
    """
    return tuple(2 ** (step / per_doubling) for step in range(first * per_doubling, last * per_doubling + 1))


SIZES = _steps(1, 13, 2)
MEASURES = (
    Measure("brightness", "mean grey value, 0 to 255", "pictures", tuple(range(0, 257, 16)), _column("brightness")),
    Measure("contrast", "deviation of the grey values", "pictures", tuple(range(0, 129, 8)), _column("contrast")),
    Measure("sharpness", "variance of the Laplacian", "pictures", _steps(0, 15, 1), _column("sharpness")),
    Measure("picture size", "root of width x height, pixels", "pictures", SIZES, _side),
    Measure("boxes per picture", "boxes", "pictures", (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 128),
            _column("boxes")),
    Measure("box size", "root of width x height, pixels", "boxes", SIZES, _side),
    Measure("box shape", "width / height", "boxes", _steps(-4, 4, 2), _shape),
)  # fmt: skip


def boxes_of(labels: pd.DataFrame) -> pd.DataFrame:
    """The label rows that are boxes."""
    return labels[labels["class_id"].notna()]


def bin_counts(values: Values, edges: tuple[float, ...]) -> Counts:
    """How many values fall into each bin.

    >>> bin_counts(np.array([-5.0, 0.5, 1.0, 99.0]), (0, 1, 2)).tolist()
    [2.0, 2.0]
    """
    inside = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return np.bincount(inside, minlength=len(edges) - 1).astype(np.float64)


def js_distance(old: Counts, new: Counts) -> float:
    """Jensen-Shannon distance, base 2, between two histograms: 0 for equal shares, 1 for nothing in common.

    >>> round(js_distance(np.array([1.0, 0]), np.array([0, 7.0])), 6)
    1.0
    >>> round(js_distance(np.array([1.0, 1]), np.array([1.0, 0])), 4)
    0.5579
    """
    p, q = _shares(old), _shares(new)
    middle = (p + q) / 2
    return float(np.sqrt(max(0.0, (_divergence(p, middle) + _divergence(q, middle)) / 2)))


def _shares(counts: Counts) -> Values:
    total = counts.sum()
    return counts / total if total else counts


def _divergence(shares: Values, other: Values) -> float:
    """Kullback-Leibler divergence in bits; bins without a share add nothing."""
    held = shares > 0
    return float((shares[held] * np.log2(shares[held] / other[held])).sum())


def is_more_than_chance(old: Counts, new: Counts) -> bool:
    """Whether two histograms differ by more than samples of this size do (G-test, normal approximation).

    >>> is_more_than_chance(np.array([3.0, 2]), np.array([2.0, 3])), is_more_than_chance(
    ...     np.array([300.0, 200]), np.array([200.0, 300]))
    (False, True)
    """
    seen: Any = np.vstack([old, new])[:, (old + new) > 0]
    if not old.sum() or not new.sum() or seen.shape[1] < 2:
        return False
    expected = np.outer(seen.sum(axis=1), seen.sum(axis=0)) / seen.sum()
    held = seen > 0
    statistic = 2 * float((seen[held] * np.log(seen[held] / expected[held])).sum())
    freedom = seen.shape[1] - 1
    return bool(statistic > freedom + CHANCE_SIGMAS * np.sqrt(2 * freedom))
