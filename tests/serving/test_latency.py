from __future__ import annotations

from collections.abc import Callable

import pytest

from serving.latency import LatencyTable, LiveLatency, measure_latencies, useful_batch

GPU = {size: 0.008 + 0.001 * size for size in (1, 2, 4, 8, 16)}
FLAT = {size: 0.09 * size for size in (1, 2, 4, 8)}


@pytest.mark.parametrize(
    ("measured", "size", "seconds"),
    [
        pytest.param({1: 9.0}, 1, 9.0, id="as measured"),
        pytest.param({1: 9.0, 5: 13.0}, 3, 11.0, id="between two sizes"),
        pytest.param({1: 9.0, 2: 10.0, 4: 12.0}, 8, 16.0, id="beyond: the last line goes on"),
        pytest.param({1: 1.0, 4: 7.0, 8: 7.0}, 15, 13.0, id="beyond a flat end: the line from the first point"),
        pytest.param({4: 8.0}, 8, 16.0, id="beyond a single point: in proportion"),
        pytest.param({4: 8.0}, 1, 8.0, id="below the smallest: no less"),
    ],
)
def test_seconds_of_a_size(measured: dict[int, float], size: int, seconds: float) -> None:
    assert LatencyTable.of(measured).seconds(size) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("measured", "smooth"),
    [
        pytest.param({2: 3.0, 1: 2.0}, [2.0, 3.0], id="in any order"),
        pytest.param({1: 2.0, 2: 4.0, 4: 2.0, 8: 9.0}, [2.0, 3.0, 3.0, 9.0], id="one dip shares a mean"),
        pytest.param({1: 5.0, 2: 4.0, 3: 3.0}, [4.0, 4.0, 4.0], id="falling all the way"),
    ],
)
def test_a_larger_batch_never_counts_as_faster(measured: dict[int, float], smooth: list[float]) -> None:
    assert [seconds for _, seconds in LatencyTable.of(measured).points] == pytest.approx(smooth)


@pytest.mark.parametrize(
    "points",
    [(), ((0, 1.0),), ((2, 1.0), (1, 2.0)), ((1, 2.0), (2, 1.0)), ((1, 0.0),)],
    ids=["nothing", "size 0", "sizes fall", "seconds fall", "no time at all"],
)
def test_a_table_checks_itself(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ValueError, match="use LatencyTable"):
        LatencyTable(points)


@pytest.mark.parametrize(
    ("measured", "max_batch", "useful"),
    [
        pytest.param(GPU, 16, 16, id="fixed cost per call: as large as allowed"),
        pytest.param(GPU, 5, 5, id="never over what is allowed"),
        pytest.param(FLAT, 8, 1, id="every picture costs the same"),
        pytest.param({1: 10.0, 2: 19.8, 4: 39.0}, 4, 1, id="a gain of two per cent does not count"),
        pytest.param({1: 10.0, 2: 12.0, 4: 16.0, 8: 32.0, 16: 64.0}, 16, 6, id="no gain past four: 6 still beats 3"),
        pytest.param(GPU, 1, 1, id="switched off"),
    ],
)
def test_useful_batch(measured: dict[int, float], max_batch: int, useful: int) -> None:
    assert useful_batch(LatencyTable.of(measured), max_batch) == useful


class Bench:
    """An engine and a clock in step: a call with n pictures takes `seconds(n)`."""

    def __init__(self, seconds: Callable[[int], float], first_extra: float = 0.0) -> None:
        self.seconds, self.first_extra = seconds, first_extra
        self.now, self.calls = 0.0, list[int]()

    def predict(self, size: int) -> None:
        self.now += self.seconds(size) + (0.0 if size in self.calls else self.first_extra)
        self.calls.append(size)

    def measure(self, budget_s: float = 60.0) -> LatencyTable:
        return measure_latencies(
            self.predict, lambda size: size, (8, 4, 2), budget_s=budget_s, repeats=2, clock=lambda: self.now
        )


def test_the_first_call_of_a_size_warms_up_and_does_not_count() -> None:
    bench = Bench(lambda size: 8.0 + size, first_extra=50.0)
    assert bench.measure(1e6).points == ((1, 9.0), (2, 10.0), (4, 12.0), (8, 16.0))
    assert bench.calls == [1] * 3 + [2] * 3 + [4] * 3 + [8] * 3


def test_measuring_stops_where_a_larger_batch_gains_nothing() -> None:
    bench = Bench(lambda size: 0.09 * size)
    table = bench.measure()
    assert [size for size, _ in table.points] == [1, 2]
    assert useful_batch(table, 8) == 1


@pytest.mark.parametrize(
    ("budget_s", "calls"),
    [(1.0, [1]), (10.0, [1, 1]), (25.0, [1, 1, 1]), (30.0, [1, 1, 1, 2])],
    ids=["one call only", "two", "size 1", "begins size 2"],
)
def test_measuring_keeps_to_its_budget_but_always_knows_size_one(budget_s: float, calls: list[int]) -> None:
    bench = Bench(lambda size: 8.0 + size)
    bench.measure(budget_s)
    assert bench.calls == calls


def test_one_disturbed_call_changes_nothing() -> None:
    slow = iter([1.0, 1.0, 5.0, 1.9, 1.9, 1.9])
    bench = Bench(lambda _: next(slow))
    table = measure_latencies(bench.predict, lambda size: size, (2,), budget_s=60.0, repeats=2, clock=lambda: bench.now)
    assert table.points == ((1, 1.0), (2, pytest.approx(1.9)))


def test_the_level_follows_an_engine_that_became_slower() -> None:
    live = LiveLatency(LatencyTable.of(GPU), 16)
    for _ in range(60):
        live.observe(16, 0.048)
    assert live.seconds(16) == pytest.approx(0.048, rel=0.02)
    assert live.seconds(1) == pytest.approx(0.018, rel=0.02)
    assert live.useful == 16


def test_one_hiccup_hardly_counts() -> None:
    live = LiveLatency(LatencyTable.of(GPU), 16)
    live.observe(1, 5.0)
    assert live.seconds(1) <= 0.009 * 1.06


def test_without_a_table_it_learns_and_does_not_promise_too_much() -> None:
    live = LiveLatency(None, 8)
    assert (live.known, live.seconds(3), live.useful) == (False, 0.0, 8)
    live.observe(1, 0.1)
    assert live.known
    assert live.seconds(4) == pytest.approx(0.4)
    live.observe(4, 0.12)
    assert live.seconds(4) == pytest.approx(0.12)
    assert live.seconds(2) == pytest.approx(0.1 + 0.02 / 3)
