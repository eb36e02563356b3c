"""Units of pictures to parts, so that every part gets its share of every class. Pure arithmetic, no files.

Iterative stratification: the rarest class first, each unit to the part that lacks that class most. Then
`tasks.splitting.split_refinement` brings the parts nearer to their shares.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.splitting.split_refinement import PICTURES, Counts, Excess, Feature, Refinement

__all__ = ["PICTURES", "UnitCounts", "stratify"]

ATTEMPTS, FEW_UNITS = 6, 5000
"""So often small sets are tried, each time in another order, while a class is beyond the tolerance."""


@dataclass(frozen=True)
class UnitCounts:
    """What one unit brings: its number of pictures, boxes per class, and pictures that show each class."""

    pictures: int
    boxes: Mapping[int, int]
    showing: Mapping[int, int]

    def features(self) -> Counts:
        """All counts under one kind of name."""
        found: Counts = {("boxes", name): count for name, count in self.boxes.items()}
        found |= {("showing", name): count for name, count in self.showing.items()}
        return found | {PICTURES: self.pictures}


def stratify(units: Sequence[UnitCounts], held: Sequence[UnitCounts], shares: Sequence[float]) -> list[int]:
    """The part of every unit, as a position in `shares` (train, val and perhaps test), which sum to 1.

    `held` is what each part has already. Units that come earlier win ties, so their order is the seed.
    """
    if not units:
        return []
    given = [part.features() for part in held]
    rows = [unit.features() for unit in units]
    best = _attempt(rows, given, shares, range(len(rows)))
    for number in range(ATTEMPTS - 1 if len(rows) <= FEW_UNITS else 0):
        if best[0][0] == 0:
            break
        order = np.random.default_rng(number).permutation(len(rows))
        best = min(best, _attempt(rows, given, shares, order.tolist()))
    return best[1]


def _attempt(
    rows: list[Counts], given: list[Counts], shares: Sequence[float], order: Sequence[int]
) -> tuple[Excess, list[int]]:
    """Parts of `rows`, taken in `order`, and what is left to wish for."""
    first = _iterative([rows[number] for number in order], given, shares)
    parts = [part for _, part in sorted(zip(order, first, strict=True))]
    return Refinement(rows, given, shares, parts).refine()


def _iterative(rows: list[Counts], given: list[Counts], shares: Sequence[float]) -> list[int]:
    """Lacking is relative to a part's share: otherwise the largest part takes all crowded units first.

    The first unit of a class goes to the first part, which trains: a class that is only judged is of no use.
    """
    total: Counter[Feature] = Counter()
    for row in [*rows, *given]:
        total.update(row)
    lacking = [
        {name: count - held.get(name, 0) / share for name, count in total.items()}
        for held, share in zip(given, shares, strict=True)
    ]
    holders: defaultdict[int, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        for kind, name in row:
            if kind == "showing":
                holders[name].append(number)
    parts = [-1] * len(rows)
    waiting = {name: len(numbers) for name, numbers in holders.items()}
    while waiting:
        rarest = min(waiting, key=lambda name: (waiting[name], name))
        key = ("boxes", rarest) if ("boxes", rarest) in total else ("showing", rarest)
        chosen = [number for number in holders[rarest] if parts[number] < 0]
        for number in sorted(chosen, key=lambda number: -rows[number].get(key, 0)):
            part = max(range(len(shares)), key=lambda part: (lacking[part][key], -part))
            parts[number] = part
            for feature, count in rows[number].items():
                lacking[part][feature] -= count / shares[part]
                if feature[0] == "showing":
                    waiting[feature[1]] -= 1
        waiting = {name: count for name, count in waiting.items() if count}
    return parts
