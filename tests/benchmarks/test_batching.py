from __future__ import annotations

import asyncio
import statistics
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.batch_cells import CAPACITY, KINDS, LOADS, Cell, CpuRun
from benchmarks.batch_findings import Findings, ShadowPair, extra_refusals, lone_ratio, p99_vs_ideal, shadow_ratio
from benchmarks.batch_load import BusyCpu, FakeGpu, Outcomes, closed_loop, gpu_seconds, open_loop
from benchmarks.batch_simulation import bursty_trace, ideal_latencies, poisson_trace, quantile
from benchmarks.batching import bars, conclude
from serving.batching import make_batcher


def seconds(size: int) -> float:
    return 8.0 + size


@pytest.mark.parametrize(
    ("arrivals", "max_batch", "deadline", "latencies"),
    [
        pytest.param([0.0], 4, 99.0, [9.0], id="alone"),
        pytest.param([0.0, 0.0, 0.0], 4, 99.0, [11.0, 11.0, 11.0], id="at the same moment"),
        pytest.param([0.0, 1.0, 2.0], 4, 99.0, [9.0, 18.0, 17.0], id="two gather while the first runs"),
        pytest.param([0.0, 9.0], 4, 99.0, [9.0, 9.0], id="one arrives as the engine becomes free"),
        pytest.param([0.0, 1.0, 1.0, 1.0], 2, 99.0, [9.0, 18.0, 18.0, 27.0], id="no call over the largest batch"),
        pytest.param([0.0, 100.0], 4, 99.0, [9.0, 9.0], id="idle between"),
        pytest.param([0.0, 1.0, 9.5], 4, 16.0, [9.0, None, 9.0], id="refused, and the engine is free for the next"),
        pytest.param([0.0, 1.0, 2.0], 4, 17.0, [9.0, None, 17.0], id="made late by one that came after it"),
        pytest.param([0.0, 1.0, 1.0, 1.0], 2, 27.0, [9.0, 18.0, 18.0, None], id="behind a full call: taken as full"),
        pytest.param([0.0, 1.0, 1.0, 1.0], 2, 28.0, [9.0, 18.0, 18.0, 27.0], id="and admitted when that fits"),
    ],
)
def test_the_ideal_queue(arrivals: list[float], max_batch: int, deadline: float, latencies: list[float | None]) -> None:
    assert ideal_latencies(arrivals, seconds, max_batch, deadline) == latencies


def test_the_ideal_never_rests_while_something_waits() -> None:
    trace = poisson_trace(CAPACITY * 3, 4000, seed=1)
    took = [latency for latency in ideal_latencies(trace, gpu_seconds, 16, 1e9) if latency is not None]
    ends_at = max(arrival + latency for arrival, latency in zip(trace, took, strict=True))
    assert 4000 / (ends_at - trace[0]) == pytest.approx(CAPACITY, rel=0.02)


@pytest.mark.parametrize("make", [poisson_trace, bursty_trace])
def test_traces_keep_their_rate_and_their_seed(make: object) -> None:
    trace = make(100.0, 20_000, 7)  # type: ignore[operator]
    assert len(trace) == 20_000
    assert trace == sorted(trace) == make(100.0, 20_000, 7)  # type: ignore[operator]
    assert trace != make(100.0, 20_000, 8)  # type: ignore[operator]
    assert len(trace) / trace[-1] == pytest.approx(100.0, rel=0.05)


def test_bursts_come_together() -> None:
    def close(trace: list[float]) -> float:
        return statistics.mean(b - a < 0.002 for a, b in pairwise(trace))

    assert close(bursty_trace(10.0, 5000, 1)) > 0.75
    assert close(poisson_trace(10.0, 5000, 1)) < 0.05


@pytest.mark.parametrize(
    ("values", "share", "value"),
    [([5.0], 0.99, 5.0), ([float(n) for n in range(1, 101)], 0.99, 99.0), ([3.0, 1.0, 2.0], 1.0, 3.0)],
)
def test_quantile(values: list[float], share: float, value: float) -> None:
    assert quantile(values, share) == value


def cell(**changes: object) -> Cell:
    base = Cell(
        kind="passline", pattern="poisson", load=0.3, deadline_s=10.0, count=1000, p50_ms=10.0, p99_ms=22.0,
        ideal_p50_ms=10.0, ideal_p99_ms=20.0, missed=0, ideal_missed=0, generator_late_p99_ms=0.1,
        engine_over_p99_ms=0.1,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def test_the_bar_of_p99_takes_the_worst_cell_and_there_the_median_trace() -> None:
    cells = [
        *(cell(p99_ms=p99) for p99 in (20.0, 21.0, 90.0)),
        *(cell(load=0.9, p99_ms=p99) for p99 in (24.0, 20.0, 26.0)),
        cell(kind="bentoml", p99_ms=500.0),
    ]
    assert p99_vs_ideal(cells, "passline") == pytest.approx(1.2)
    assert p99_vs_ideal(cells, "bentoml") == pytest.approx(25.0)


def test_the_bar_of_refusals_is_what_the_ideal_would_have_answered_on_top() -> None:
    cells = [cell(missed=5, ideal_missed=5), cell(missed=7, ideal_missed=4), cell(load=0.9, missed=0, ideal_missed=9)]
    assert extra_refusals(cells, "passline") == pytest.approx(3 / 2000)


def test_the_bars_of_lone_clients_and_shadow() -> None:
    assert lone_ratio([(10.0, 10.0), (10.0, 12.0), (10.0, 50.0)]) == pytest.approx(1.2)
    pairs = [ShadowPair(0.3, 10.0, 10.5, 9.0), ShadowPair(0.7, 10.0, 11.0, 9.0), ShadowPair(0.7, 10.0, 12.0, 9.0)]
    assert shadow_ratio(pairs) == pytest.approx(1.15)


def findings() -> Findings:
    cells = [cell(kind=kind, pattern=pattern, load=load) for kind in KINDS for pattern in ("poisson", "bursty")
             for load in LOADS]  # fmt: skip
    return Findings(
        cells=cells,
        at_takt=cells,
        tight=[cell(kind=kind, load=0.9) for kind in KINDS],
        saturation={kind: [0.97, 0.98, 0.99] for kind in KINDS},
        lone_ms={kind: [(9.0, 9.0)] for kind in KINDS},
        shadow=[ShadowPair(0.3, 10.0, 10.5, 9.0), ShadowPair(0.7, 10.0, 10.5, 9.0)],
        cpu=[CpuRun(kind, 0.9, 40.0, 50.0, 6.0, 1.0) for kind in KINDS],
        cost_us={kind: {"1": 50.0, "16": 15.0} for kind in KINDS},
    )


def test_a_full_run_decides_every_bar_and_a_quick_one_none() -> None:
    assert {bar.name: bar.holds for bar in conclude(findings(), 2, quick=False).bars} == {
        "p99_vs_ideal": True, "saturation": True, "extra_refusals": True, "lone_after_burst": True,
        "shadow_p99_ratio": True,
    }  # fmt: skip
    assert {bar.holds for bar in conclude(findings(), 2, quick=True).bars} == {None}


def test_nothing_measured_holds_no_bar() -> None:
    assert {bar.holds for bar in bars(Findings(), decided=True)} == {False}


def test_open_loop_counts_every_picture_once() -> None:
    async def story() -> Outcomes:
        batcher = make_batcher("passline", FakeGpu().run, max_batch=2, max_queue=4)
        try:
            return await open_loop(batcher, [0.0] * 10 + [0.2], deadline_s=5.0)
        finally:
            batcher.close()

    outcomes = asyncio.run(story())
    assert len(outcomes.latencies_s) + outcomes.missed == len(outcomes.generator_late_s) == 11
    assert outcomes.refused >= 4
    assert min(outcomes.latencies_s) >= gpu_seconds(1)


def test_closed_loop_ends_and_counts() -> None:
    async def story() -> Outcomes:
        batcher = make_batcher("passline", lambda batch: batch, max_batch=8, max_queue=64)
        try:
            return await closed_loop(batcher, 4, 0.05)
        finally:
            batcher.close()

    outcomes = asyncio.run(story())
    assert outcomes.latencies_s
    assert outcomes.missed == 0
    assert outcomes.wall_s >= 0.05


def test_engines_take_the_time_they_say() -> None:
    gpu = FakeGpu()
    gpu.run(np.zeros((3, 3, 4, 4), np.float32))
    assert min(gpu.over_s) > -0.001
    assert BusyCpu(0.001).limit(2, 0.05) > 0
