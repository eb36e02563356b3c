"""The rules of batching, as plain functions of what is known: who goes next, how many, whether to wait, whom to refuse.

Times are seconds; `seconds(size)` is what an engine call with `size` pictures is expected to take.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Seconds = Callable[[int], float]

GPU_WINDOW_S = 0.004
COMPANY_LIKELY = 0.7
"""An idle engine waits when this share of the latest arrivals at an idle engine had company within the window."""
COMPANY_RECENT_S = 1.0
GAP_SHARE = 0.1
"""Share of the engine's time that shadow and bulk get while inspections arrive."""
GAP_CALL = 1.5
"""A gap call may take so many times what a single picture takes: the engine cannot be interrupted."""
QUIET_S = 1.0
"""Without an inspection for so long, shadow and bulk have the engine for themselves."""
MARGIN = 0.01
"""A promise keeps this share of one engine call in reserve."""
_NEWEST_WEIGHS = 0.2


EVEN = 2
"""Several streams take one part in so many of their share of what waits. Measured at 160 px, 16 clients, two CPUs: 4
gives calls of two, 0.88 of the machine's limit and a p99 of 1.22 times the median; 2 gives 0.90 and 1.3, 1 gives 0.94
and 1.4."""


def batch_count(waiting: int, streams: int, useful: int) -> int:
    """How many of `waiting` go into one call: one stream takes all that pays, several share.

    Several streams are a CPU's, where a larger call gains little and its pictures are worked on one after the other. So
    each takes a part of its share, and latencies stay even: with calls as large as pay, what comes a moment too late
    waits for all of them.

    >>> batch_count(5, 1, 8), batch_count(20, 1, 8), batch_count(5, 2, 8), batch_count(12, 2, 8), batch_count(5, 2, 1)
    (5, 8, 2, 3, 1)
    """
    return min(useful, waiting if streams == 1 else -(-waiting // (streams * EVEN)))


def fitting_count(deadlines: Sequence[float], now: float, seconds: Seconds) -> int:
    """How many of the next pictures go now: all, or fewer where that saves the most urgent one and costs no other.

    deadlines: those of the pictures that would go, growing. Pictures that are late whatever is done are not urgent;
    they go along. Where those left behind would be late in the next call, all go: smaller calls only lose time.

    >>> fitting_count([15.0, 90.0, 90.0], 0.0, lambda size: 8.0 + 4 * size)
    1
    >>> fitting_count([15.0, 16.0, 17.0], 0.0, lambda size: 8.0 + 4 * size)
    3
    """
    count, hopeless = len(deadlines), bisect_right(deadlines, now + seconds(1) - 1e-9)
    fewer = next((n for n in range(count, hopeless, -1) if now + seconds(n) <= deadlines[hopeless]), count)
    if fewer < count and now + seconds(fewer) + seconds(count - fewer) <= deadlines[fewer]:
        return fewer
    return count


@dataclass(frozen=True)
class Forecast:
    """When what waits will be answered: in full calls, each on the stream that is free first.

    A call that has to wait for a full one is taken to be full when it starts: meanwhile others come. To count on its
    size of this moment would promise too much in every burst and answer late.

    free_at: when each stream can start its next call, earliest first.
    """

    free_at: Sequence[float]
    useful: int
    seconds: Seconds

    def finish(self, index: int, waiting: int) -> float:
        """When picture `index` of `waiting` is answered.

        >>> forecast = Forecast([10.0], 4, lambda size: 8.0 + size)
        >>> forecast.finish(1, 2), forecast.finish(5, 6)
        (20.0, 34.0)
        """
        before = index // self.useful
        rounds, stream = divmod(before, len(self.free_at))
        size = self.useful if before else min(self.useful, waiting)
        return self.free_at[stream] + rounds * self.seconds(self.useful) + self.seconds(size)

    def late_by(self, expires_at: float, ahead: int, behind: Sequence[float]) -> float:
        """How late a newcomer would be, or would make a picture that was admitted; 0 or less when all is well.

        ahead: pictures that go first; behind: deadlines of those that its own deadline puts after it, growing. A
        picture that would be late anyway is no reason to refuse another one.
        """
        waiting = ahead + len(behind)
        late = self.finish(ahead, waiting + 1) + MARGIN * self.seconds(self.useful) - expires_at
        for index, deadline in enumerate(behind, ahead):
            if self.finish(index, waiting) <= deadline:
                late = max(late, self.finish(index + 1, waiting + 1) - deadline)
        return late


class Company:
    """Whether a picture that finds the engine idle can expect another one within the window.

    It looks at what happened after the latest such arrivals, waited for or not. A burst is one such arrival, so a lone
    client after it finds no expectation left behind.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._share = 0.0
        self._open_since: float | None = None
        self._seen_at = float("-inf")

    def arrived(self, now: float, *, idle: bool) -> None:
        """A picture arrived; idle: nothing waited or ran."""
        if self._open_since is not None:
            came = now - self._open_since <= self.window_s
            self._share += _NEWEST_WEIGHS * (came - self._share)
            self._seen_at = now if came else self._seen_at
        self._open_since = now if idle else None

    def likely(self, now: float) -> bool:
        """Whether waiting a window would probably bring company."""
        return self._share >= COMPANY_LIKELY and now - self._seen_at <= COMPANY_RECENT_S


def company_pays(waiting: int, pause_s: float, seconds: Seconds) -> bool:
    """Whether one call for all saves more of the engine's time than waiting `pause_s` for one more picture costs.

    >>> company_pays(1, 4.0, lambda size: 8.0 + size), company_pays(1, 4.0, lambda size: 9.0 * size)
    (True, False)
    """
    return seconds(waiting) + seconds(1) - seconds(waiting + 1) > pause_s > 0


def gap_count(useful: int, seconds: Seconds, *, quiet: bool) -> int:
    """Pictures in a shadow or bulk call: as many as pay when no inspection is about, else what a short call takes.

    >>> gap_count(16, lambda size: 8.0 + size, quiet=False), gap_count(16, lambda size: 8.0 + size, quiet=True)
    (5, 16)
    """
    if quiet:
        return useful
    return max((size for size in range(1, useful + 1) if seconds(size) <= GAP_CALL * seconds(1)), default=1)


class Gaps:
    """When shadow and bulk may have the engine."""

    def __init__(self) -> None:
        self._inspected_at = float("-inf")
        self._not_before = float("-inf")

    def inspection(self, now: float) -> None:
        """An inspection arrived."""
        self._inspected_at = now

    def used(self, now: float, call_s: float) -> None:
        """A gap call of `call_s` begins."""
        self._not_before = now + call_s / GAP_SHARE

    def quiet(self, now: float) -> bool:
        """No inspection was about for a while."""
        return now - self._inspected_at >= QUIET_S

    def pause_s(self, now: float) -> float:
        """Seconds until a gap call may begin; 0 when it may now."""
        return max(0.0, min(self._not_before, self._inspected_at + QUIET_S) - now)


def window_s(wished_s: float | None, provider: str) -> float:
    """How long an idle engine may wait for company: as wished, else 4 ms on a GPU and not at all on a CPU.

    >>> window_s(None, "tensorrt"), window_s(None, "openvino"), window_s(0.002, "cpu")
    (0.004, 0.0, 0.002)
    """
    if wished_s is not None:
        return wished_s
    return GPU_WINDOW_S if provider in {"cuda", "tensorrt"} else 0.0
