"""Moves single units, and swaps pairs of them, for as long as that brings the parts nearer to their shares.

The best step first, in rounds: a class that stays too far off weighs more in the next one. What is brought near: boxes
of each class, pictures that show each class, pictures without boxes, and pictures in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

NEAR_ENOUGH = 0.002
"""No step is taken once every feature of every part is this near to its share."""
MAX_STEPS, MAX_WORK = 500, 80_000_000
"""Most steps, and most counts that they look at: a few dozen are usual, and a large set is near its shares before."""
TOLERANCE, MAX_ROUNDS = 0.02, 8
"""A class that is further off than this in its boxes weighs double in the next round."""
SWAP_CANDIDATES = 48
"""How many units of each side are tried as one half of a swap."""
NOTEWORTHY_GAIN = 1e-9
"""Gains below are rounding: they differ between machines."""
SHOWING_WEIGHT = 0.1
"""Weight of the pictures that show a class. Its boxes weigh 1, as do a part's size and its pictures without boxes."""

TRAIN, VAL = 0, 1
"""Positions of these two parts."""

Feature = tuple[str, int]
"""("boxes", class), ("showing", class) or ("pictures", 0)."""
PICTURES: Feature = ("pictures", 0)
Counts = dict[Feature, int]
Excess = tuple[float, float]
"""How far boxes of classes lie beyond the tolerance in train and val, and the mean square of all distances."""

Array = npt.NDArray[np.float64]


class Refinement:
    """Moves and swaps that lower the distance: the squares of (share reached - share wished), summed.

    A part's distances weigh by one over its share: a point is more to a small part.
    """

    def __init__(
        self,
        rows: list[Counts],
        given: list[Counts],
        shares: Sequence[float],
        parts: list[int],
    ) -> None:
        columns = {
            name: number for number, name in enumerate(sorted({name for row in [*rows, *given] for name in row}))
        }
        counts, held = _matrix(rows, columns), _matrix(given, columns)
        total = np.asarray(counts.sum(axis=0) + held.sum(axis=0)).ravel()
        self._rows = counts @ sparse.diags_array(1 / total)
        minor = [kind == "showing" and ("boxes", name) in columns for kind, name in columns]
        self._weight = np.where(minor, SHOWING_WEIGHT, 1.0)
        self._is_boxes = np.array([name[0] == "boxes" for name in columns])
        self._weigh(np.zeros(len(columns), dtype=np.bool_))
        self._tolerance = _tolerances(counts, held.toarray(), total, np.array(shares))
        self._shares = np.array(shares)
        self._parts = np.array(parts)
        showing = [number for name, number in columns.items() if name[0] == "showing"]
        self._shows = (counts[:, showing] > 0).astype(float).tocsr()
        members = [self._parts == part for part in range(len(shares))]
        self._off = held.toarray() / total + np.array([self._rows[of].sum(axis=0) for of in members])
        self._off -= self._shares[:, None]
        self._showing = (held.toarray()[:, showing] > 0) + np.array([self._shows[of].sum(axis=0) for of in members])

    def refine(self) -> tuple[Excess, list[int]]:
        """The round in which the classes came nearest to their shares: what it leaves to wish for, and its parts."""
        best = (self._excess(), self._parts.tolist())
        steps = min(MAX_STEPS, 1 + MAX_WORK // (1 + self._rows.nnz))
        for _ in range(MAX_ROUNDS):
            while steps and np.abs(self._off).max() > NEAR_ENOUGH and (self._move() or self._swap()):
                steps -= 1
            best = min(best, (self._excess(), self._parts.tolist()))
            missed = np.logical_or.reduce(self._missed(), axis=0)
            if not steps or not missed.any():
                break
            self._weigh(missed)
        return best

    def _missed(self) -> npt.NDArray[np.bool_]:
        """Of which class a part has too many or too few boxes, (parts, features)."""
        return np.asarray((np.abs(self._off) > self._tolerance) & self._is_boxes)

    def _excess(self) -> Excess:
        beyond = np.where(self._missed(), np.abs(self._off) - self._tolerance, 0)[: VAL + 1].sum()
        return round(float(beyond), 12), round(float((self._off**2).mean()), 12)

    def _weigh(self, missed: npt.NDArray[np.bool_]) -> None:
        """Put more weight on some features."""
        self._weight = np.where(missed, 2 * self._weight, self._weight)
        self._square = self._rows.multiply(self._rows) @ self._weight

    def _pairs(self) -> list[tuple[int, int]]:
        numbers = range(len(self._shares))
        return [(source, target) for source in numbers for target in numbers if source != target]

    def _change(self, source: int, target: int) -> Array:
        """By how much moving each unit from `source` to `target` lengthens the distance; infinite where it may not."""
        pull, push = 1 / self._shares[target], 1 / self._shares[source]
        slope = 2 * self._weight * (pull * self._off[target] - push * self._off[source])
        change = self._rows @ slope + (pull + push) * self._square
        return np.where((self._parts == source) & self._may_leave(source), change, np.inf)

    def _may_leave(self, source: int) -> npt.NDArray[np.bool_]:
        """Whether each unit may go: train keeps one of each class, and val one of each class that train has too."""
        if source > VAL:
            return np.ones(len(self._parts), dtype=np.bool_)
        kept = self._showing[source] <= 1
        if source == VAL:
            kept &= self._showing[TRAIN] > 0
        return np.asarray(self._shows @ kept.astype(float) == 0)

    def _move(self) -> bool:
        found = []
        for source, target in self._pairs():
            change = self._change(source, target)
            best = int(change.argmin())
            found.append((round(float(change[best]), 12), source, target, best))
        gain, source, target, best = min(found)
        if gain > -NOTEWORTHY_GAIN:
            return False
        self._take(best, source, target)
        return True

    def _swap(self) -> bool:
        best = (0.0, 0, 0, 0, 0)
        for source, target in self._pairs():
            if source < target:
                best = min(best, self._best_swap(source, target))
        gain, source, target, one, other = best
        if gain > -NOTEWORTHY_GAIN:
            return False
        self._take(one, source, target)
        self._take(other, target, source)
        return True

    def _best_swap(self, source: int, target: int) -> tuple[float, int, int, int, int]:
        there, back = self._change(source, target), self._change(target, source)
        ones, others = (np.argsort(change, kind="stable")[:SWAP_CANDIDATES] for change in (there, back))
        weight = 2 * (1 / self._shares[source] + 1 / self._shares[target]) * self._weight
        cross = (self._rows[ones].toarray() * weight) @ self._rows[others].toarray().T
        both = there[ones][:, None] + back[others][None, :] - cross
        row, column = np.unravel_index(int(both.argmin()), both.shape)
        return round(float(both[row, column]), 12), source, target, int(ones[row]), int(others[column])

    def _take(self, unit: int, source: int, target: int) -> None:
        row, shows = self._rows[[unit]].toarray()[0], self._shows[[unit]].toarray()[0]
        self._parts[unit] = target
        self._off[source] -= row
        self._off[target] += row
        self._showing[source] -= shows
        self._showing[target] += shows


def _tolerances(counts: sparse.csr_array, held: Array, total: Array, shares: Array) -> Array:
    """How far off each feature may be in each part: TOLERANCE, or more where whole units come no nearer."""
    columns = counts.tocsc()
    values = np.split(columns.data.astype(np.int64), columns.indptr[1:-1])
    grain = np.array([np.gcd.reduce(found) if len(found) else 1 for found in values], dtype=np.float64)
    wanted = (total * shares[:, None] - held) / grain
    return np.maximum(TOLERANCE, np.abs(wanted - np.maximum(np.rint(wanted), 0)) * grain / total) + NOTEWORTHY_GAIN


def _matrix(rows: list[Counts], columns: Mapping[Feature, int]) -> sparse.csr_array:
    """One row per unit, one column per feature."""
    lengths = np.cumsum([0, *(len(row) for row in rows)])
    places = [columns[name] for row in rows for name in row]
    values = np.array([count for row in rows for count in row.values()], dtype=np.float64)
    return sparse.csr_array((values, places, lengths), shape=(len(rows), len(columns)))
