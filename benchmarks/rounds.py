"""Interleaved measurement: every round measures each subject once, one after the other, each drained before the next.

A machine that slows down for a while slows down all of a round, so subjects are compared within rounds: the ratio of a
cell is the median of the rounds' ratios.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.load import LoadResult

DRAIN_S = 0.3
ENOUGH_ROUNDS = 7
ENOUGH_REQUESTS = 2000


@dataclass(frozen=True)
class Subject:
    """Something that is measured: `run` sends that many requests; `cpu_s` are its CPU seconds so far."""

    name: str
    requests: int
    run: Callable[[int], LoadResult]
    cpu_s: Callable[[], float] = lambda: 0.0


@dataclass(frozen=True, eq=False)
class Cell:
    """One subject in one round."""

    result: LoadResult
    cpu_s: float

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        one = self.result
        return {
            "throughput_per_s": _number(one.throughput_per_s),
            "p50_ms": one.percentile_ms(50),
            "p99_ms": one.percentile_ms(99),
            "count": one.count,
            "failed": one.failed,
            "statuses": {str(status): count for status, count in sorted(one.statuses.items())},
            "cpu_ms_per_request": self.cpu_s / one.count * 1000,
            "sender_share": one.sender_share,
        }


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


@dataclass(frozen=True, eq=False)
class Rounds:
    """All rounds of some subjects."""

    cells: Mapping[str, Sequence[Cell]] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return bool(self.cells.get(name))

    def requests(self, name: str) -> int:
        """Of all rounds."""
        return sum(cell.result.count for cell in self.cells.get(name, ()))

    def throughput_per_s(self, name: str) -> float:
        """Median of the rounds."""
        return statistics.median(cell.result.throughput_per_s for cell in self.cells[name])

    def cpu_ms(self, name: str) -> float:
        """CPU milliseconds per request, median of the rounds."""
        return statistics.median(cell.cpu_s / cell.result.count * 1000 for cell in self.cells[name])

    def percentile_ms(self, name: str, percent: float) -> float:
        """Over the answers of all rounds."""
        latencies = np.concatenate([cell.result.latencies_s for cell in self.cells[name]])
        return float(np.percentile(latencies, percent)) * 1000

    def ratio(self, name: str, other: str) -> float | None:
        """Throughput of `name` over that of `other`; None where one of them was not measured."""
        if name not in self or other not in self:
            return None
        pairs = zip(self.cells[name], self.cells[other], strict=True)
        return statistics.median(one.result.throughput_per_s / two.result.throughput_per_s for one, two in pairs)

    def extra_p50_ms(self, name: str, other: str) -> float | None:
        """Median of the rounds' differences of median latencies."""
        if name not in self or other not in self:
            return None
        pairs = zip(self.cells[name], self.cells[other], strict=True)
        return statistics.median(one.result.percentile_ms(50) - two.result.percentile_ms(50) for one, two in pairs)

    def failed(self, name: str) -> int:
        """Requests without a right answer."""
        return sum(cell.result.failed for cell in self.cells.get(name, ()))

    def enough(self, *names: str) -> bool:
        """Whether a ratio close to 1 may be claimed."""
        return all(
            len(self.cells.get(name, ())) >= ENOUGH_ROUNDS and self.requests(name) >= ENOUGH_REQUESTS for name in names
        )

    @property
    def sender_share(self) -> float:
        """The largest share of a core that the sender took in any cell."""
        return max((cell.result.sender_share for cells in self.cells.values() for cell in cells), default=0.0)

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {name: [cell.facts() for cell in cells] for name, cells in self.cells.items()}


def run_rounds(subjects: Sequence[Subject], rounds: int, say: Callable[[str], None]) -> Rounds:
    """Warm each up, then measure. Each round begins with another subject, so that none always follows the same one."""
    cells: dict[str, list[Cell]] = {subject.name: [] for subject in subjects}
    for subject in subjects:
        subject.run(min(subject.requests, 32))
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for subject in rotated(subjects, number):
            time.sleep(DRAIN_S)
            before = subject.cpu_s()
            result = subject.run(subject.requests)
            cells[subject.name].append(Cell(result, subject.cpu_s() - before))
    return Rounds(cells)


def rotated(subjects: Sequence[Subject], number: int) -> list[Subject]:
    """The subjects, beginning with another one for each number."""
    shift = number % len(subjects)
    return [*subjects[shift:], *subjects[:shift]]
