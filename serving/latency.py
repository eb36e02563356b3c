"""How long an engine call takes, by batch size: measured at warm-up on the host that will answer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")

PAYS = 0.05
"""A larger batch pays when a picture in it takes at least this share less than in a batch of half the size."""
CALL_S = 0.001
"""What a call costs beside the engine, whatever its size: taking pictures, handing answers over, threads that wake each
other. Measured in the service at 160 px with 16 clients on two CPUs: 6.05, 5.5 and 5.3 ms of CPU time per picture in
calls of 1, 2 and 4. It makes small batches pay on light models, and is nothing beside a call of 90 ms."""
_NEWEST_WEIGHS = 0.1
_STRAY = 1.5


@dataclass(frozen=True)
class LatencyTable:
    """Seconds per engine call. `points` are (batch size, seconds), growing in both; make it with `of`."""

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        sizes = [size for size, _ in self.points]
        seconds = [second for _, second in self.points]
        if not sizes or sizes[0] < 1 or any(a >= b for a, b in pairwise(sizes)):
            raise ValueError(f"points: expected growing batch sizes from 1, got {sizes}; use LatencyTable.of")
        if seconds[0] <= 0 or any(a > b for a, b in pairwise(seconds)):
            raise ValueError(f"points: expected positive seconds that never fall, got {seconds}; use LatencyTable.of")

    @classmethod
    def of(cls, measured: Mapping[int, float]) -> LatencyTable:
        """A table of measured calls. A larger batch that was measured faster is noise: such neighbours share a mean.

        >>> LatencyTable.of({1: 1.0, 2: 1.4, 4: 1.1}).points
        ((1, 1.0), (2, 1.25), (4, 1.25))
        """
        blocks: list[tuple[float, int]] = []
        for size in sorted(measured):
            mean, members = measured[size], 1
            while blocks and blocks[-1][0] > mean:
                earlier, count = blocks.pop()
                mean = (earlier * count + mean * members) / (count + members)
                members += count
            blocks.append((mean, members))
        smooth = [mean for mean, members in blocks for _ in range(members)]
        return cls(tuple(zip(sorted(measured), smooth, strict=True)))

    def seconds(self, size: int) -> float:
        """Seconds of a call with `size` pictures: straight lines between what was measured.

        Above the largest measured size it grows by the steeper of the last line and the line from the first point, or
        in proportion when there is only one point: a guess here must not promise too much.

        >>> round(LatencyTable.of({1: 0.009, 3: 0.011}).seconds(2), 6)
        0.01
        """
        first, last = self.points[0], self.points[-1]
        if size <= first[0]:
            return first[1]
        if size <= last[0]:
            at = bisect_left(self.points, (size, 0.0))
            return _on_line(self.points[at - 1], self.points[at], size)
        if len(self.points) == 1:
            return last[1] * size / last[0]
        return max(_on_line(self.points[-2], last, size), _on_line(first, last, size))


def _on_line(a: tuple[int, float], b: tuple[int, float], size: int) -> float:
    return a[1] + (b[1] - a[1]) * (size - a[0]) / (b[0] - a[0])


def useful_batch(table: LatencyTable, max_batch: int) -> int:
    """The largest batch, up to `max_batch`, that pays over one of half its size; 1 where none does.

    >>> useful_batch(LatencyTable.of({1: 0.009, 16: 0.024}), 32), useful_batch(LatencyTable.of({1: 0.09, 8: 0.72}), 8)
    (32, 1)
    """
    return max((size for size in range(1, max_batch + 1) if size == 1 or pays(table, size)), default=1)


def pays(table: LatencyTable, size: int) -> bool:
    """Whether a picture in a batch of `size` takes clearly less than in one of half that size."""
    half = -(-size // 2)
    return (table.seconds(size) + CALL_S) / size <= (1 - PAYS) * (table.seconds(half) + CALL_S) / half


def measure_latencies(
    predict: Callable[[T], object],
    make_batch: Callable[[int], T],
    sizes: Iterable[int],
    *,
    budget_s: float = 1.5,
    repeats: int = 3,
    enough_s: float = 0.06,
    clock: Callable[[], float] = perf_counter,
) -> LatencyTable:
    """Time the engine, small batches first, and stop where a larger one gains nothing or the budget is spent.

    The fastest call of a size counts: whatever disturbs a measurement makes it slower, and would make sizes pay that do
    not. Short calls are repeated for `enough_s` seconds, for they are disturbed most. The first call of a size warms
    the engine up and is left out, unless the budget ends with it. Size 1 is always measured.
    """
    started, measured = clock(), dict[int, float]()
    for size in sorted({1, *sizes}):
        if measured and clock() - started >= budget_s:
            break
        batch, calls, begun = make_batch(size), list[float](), clock()
        while not calls or ((len(calls) <= repeats or clock() - begun < enough_s) and clock() - started < budget_s):
            before = clock()
            predict(batch)
            calls.append(clock() - before)
        measured[size] = max(min(calls[1:] or calls), 1e-9)
        if size > 1 and not pays(LatencyTable.of(measured), size):
            break
    return LatencyTable.of(measured)


class LiveLatency:
    """A table that follows the engine: measured calls move its level slowly, its shape stays as warm-up measured it.

    Without a table it learns one, size by size. A call that was slow for a reason of its own counts as little more
    than expected, so that one hiccup does not refuse pictures.
    """

    def __init__(self, table: LatencyTable | None, max_batch: int) -> None:
        self._max_batch = max_batch
        self._learns = table is None
        self._seen: dict[int, float] = {}
        self._level = 1.0
        self._by_size: list[float] | None = None
        self.useful = max_batch
        if table is not None:
            self._set(table)

    @property
    def known(self) -> bool:
        """Whether anything was measured yet."""
        return self._by_size is not None

    def seconds(self, size: int) -> float:
        """Expected seconds of a call with 1 to max_batch pictures; 0 while nothing is known."""
        return self._by_size[size - 1] * self._level if self._by_size else 0.0

    def observe(self, size: int, seconds: float) -> None:
        """Take in a call that was made."""
        if self._learns:
            before = self._seen.get(size, seconds)
            self._seen[size] = before + 3 * _NEWEST_WEIGHS * (seconds - before)
            self._set(LatencyTable.of(self._seen))
        else:
            ratio = min(seconds / self.seconds(size), _STRAY)
            self._level *= 1 + _NEWEST_WEIGHS * (ratio - 1)

    def _set(self, table: LatencyTable) -> None:
        self._by_size = [table.seconds(size) for size in range(1, self._max_batch + 1)]
        if not self._learns:
            self.useful = useful_batch(table, self._max_batch)
