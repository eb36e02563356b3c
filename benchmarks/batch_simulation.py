"""Arrival traces, and the ideal batch queue that a real one is held against. Times are seconds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

BURST_MEAN = 6.0
BURST_SPREAD_S = 0.002


def poisson_trace(per_second: float, count: int, seed: int) -> list[float]:
    """Arrival times of `count` pictures that know nothing of each other."""
    chance, now = random.Random(seed), 0.0
    trace = []
    for _ in range(count):
        now += chance.expovariate(per_second)
        trace.append(now)
    return trace


def bursty_trace(per_second: float, count: int, seed: int) -> list[float]:
    """Bursts at random times: geometric sizes, 6 pictures in the mean, within 2 ms."""
    chance, now = random.Random(seed), 0.0
    trace: list[float] = []
    while len(trace) < count:
        now += chance.expovariate(per_second / BURST_MEAN)
        trace.append(now + chance.random() * BURST_SPREAD_S)
        while chance.random() < 1 - 1 / BURST_MEAN:
            trace.append(now + chance.random() * BURST_SPREAD_S)
    return sorted(trace)[:count]


def ideal_latencies(
    arrivals: Sequence[float], seconds: Callable[[int], float], max_batch: int, deadline_s: float
) -> list[float | None]:
    """Latency of each picture in a queue that costs nothing, None where it is not answered in time.

    The engine never rests while something waits and takes all that waits, up to `max_batch`, in order of arrival. A
    picture is refused when it arrives if it would be late by what is known then, where a call behind a full one is
    taken as full; what is answered late although it was admitted counts as not answered.
    """
    latencies: list[float | None] = [None] * len(arrivals)
    waiting: list[int] = []
    free_at = 0.0

    def serve_until(now: float) -> None:
        nonlocal free_at, waiting
        while waiting and (start := max(free_at, arrivals[waiting[0]])) < now:
            batch, waiting = waiting[:max_batch], waiting[max_batch:]
            free_at = start + seconds(len(batch))
            for index in batch:
                took_s = free_at - arrivals[index]
                latencies[index] = took_s if took_s <= deadline_s else None

    for index, now in enumerate(arrivals):
        serve_until(now)
        full, rest = divmod(len(waiting), max_batch)
        finish = max(free_at, now) + full * seconds(max_batch) + seconds(max_batch if full else rest + 1)
        if finish - now <= deadline_s:
            waiting.append(index)
    serve_until(float("inf"))
    return latencies


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed.

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[max(0, -(-round(share * len(ordered) * 1e6) // 10**6) - 1)]
