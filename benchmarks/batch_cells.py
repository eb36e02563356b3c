"""The single runs of `benchmarks.batching`: one batcher, one load, one answer to one question."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmarks.batch_load import (
    PICTURE,
    BusyCpu,
    FakeGpu,
    Outcomes,
    closed_loop,
    gpu_seconds,
    open_loop,
    submit_counted,
)
from benchmarks.batch_simulation import bursty_trace, ideal_latencies, poisson_trace, quantile
from serving.batching import AnyBatcher, BatcherKind, Lane, make_batcher
from serving.latency import LatencyTable, measure_latencies

T = TypeVar("T")
MAX_BATCH = 16
CAPACITY = MAX_BATCH / gpu_seconds(MAX_BATCH)
WINDOW_S = 0.004
UNHURRIED_S = 10.0
LOADS = (0.3, 0.7, 0.9)
PATTERNS: dict[str, Callable[[float, int, int], list[float]]] = {"poisson": poisson_trace, "bursty": bursty_trace}
KINDS: tuple[BatcherKind, ...] = ("passline", "bentoml")


@dataclass(frozen=True)
class Cell:
    """One trace through one batcher, beside the ideal queue on the same trace. Latencies in ms."""

    kind: BatcherKind
    pattern: str
    load: float
    deadline_s: float
    count: int
    p50_ms: float
    p99_ms: float
    ideal_p50_ms: float
    ideal_p99_ms: float
    missed: int
    ideal_missed: int
    generator_late_p99_ms: float
    engine_over_p99_ms: float

    @property
    def p99_ratio(self) -> float:
        """p99 over the ideal's."""
        return self.p99_ms / self.ideal_p99_ms


@dataclass(frozen=True)
class Bench:
    """What all runs with the fake GPU share: how late sleeps end here."""

    sleep_excess_s: float

    def gpu_batcher(self, kind: BatcherKind, gpu: FakeGpu, deadline_s: float) -> AnyBatcher:
        """A batcher around the fake GPU, with the table that a warm-up would measure."""
        table = LatencyTable.of({size: gpu_seconds(size) for size in (1, 2, 4, 8, MAX_BATCH)})
        return make_batcher(
            kind,
            gpu.run,
            max_batch=MAX_BATCH,
            max_queue=4096,
            table=table,
            window_s=WINDOW_S,
            deadline_s=deadline_s,
        )

    def run(self, kind: BatcherKind, work: Callable[[AnyBatcher], Coroutine[Any, Any, T]], deadline_s: float) -> T:
        """Do `work` with a new batcher on a new event loop."""
        return self._run(kind, FakeGpu(self.sleep_excess_s), work, deadline_s)

    def _run(
        self,
        kind: BatcherKind,
        gpu: FakeGpu,
        work: Callable[[AnyBatcher], Coroutine[Any, Any, T]],
        deadline_s: float = UNHURRIED_S,
    ) -> T:
        async def story() -> T:
            batcher = self.gpu_batcher(kind, gpu, deadline_s)
            try:
                return await work(batcher)
            finally:
                batcher.close()

        return asyncio.run(story())

    def cell(
        self, kind: BatcherKind, pattern: str, load: float, *, count: int, seed: int, deadline_s: float = UNHURRIED_S
    ) -> Cell:
        """One trace, open loop."""
        trace = PATTERNS[pattern](CAPACITY * load, count, seed)
        ideal = [took for took in ideal_latencies(trace, gpu_seconds, MAX_BATCH, deadline_s) if took is not None]
        gpu = FakeGpu(self.sleep_excess_s)
        outcomes = self._run(kind, gpu, lambda batcher: open_loop(batcher, trace, deadline_s), deadline_s)
        return Cell(
            kind=kind,
            pattern=pattern,
            load=load,
            deadline_s=deadline_s,
            count=count,
            p50_ms=quantile(outcomes.latencies_s, 0.5) * 1e3,
            p99_ms=quantile(outcomes.latencies_s, 0.99) * 1e3,
            ideal_p50_ms=quantile(ideal, 0.5) * 1e3,
            ideal_p99_ms=quantile(ideal, 0.99) * 1e3,
            missed=outcomes.missed,
            ideal_missed=count - len(ideal),
            generator_late_p99_ms=quantile(outcomes.generator_late_s, 0.99) * 1e3,
            engine_over_p99_ms=quantile(gpu.over_s, 0.99) * 1e3,
        )

    def saturation(self, kind: BatcherKind, seconds: float) -> float:
        """Pictures per second with 64 clients, over what the engine alone can do."""
        outcomes = self.run(kind, lambda batcher: closed_loop(batcher, 4 * MAX_BATCH, seconds), UNHURRIED_S)
        return len(outcomes.latencies_s) / outcomes.wall_s / CAPACITY

    def lone_after_burst(self, kind: BatcherKind, count: int) -> tuple[float, float]:
        """Median latency of a lone client, in seconds: before bursts came, and right after the last of them."""

        async def story(batcher: AnyBatcher) -> tuple[float, float]:
            before = await _lone(batcher, count)
            for _ in range(10):
                burst = Outcomes()
                now = time.monotonic()
                await asyncio.gather(
                    *(submit_counted(batcher, now, UNHURRIED_S, Lane.INSPECTION, burst) for _ in range(64))
                )
            return before, await _lone(batcher, count)

        return self.run(kind, story, UNHURRIED_S)

    def shadow(self, load: float, count: int, seed: int, *, with_shadow: bool) -> tuple[float, float]:
        """p99 of inspections, in seconds, and shadow pictures answered per second beside them.

        The shadow lane is offered 30 % of what the engine can do, with a deadline of one second.
        """
        trace = poisson_trace(CAPACITY * load, count, seed)
        beside = poisson_trace(CAPACITY * 0.3, round(trace[-1] * CAPACITY * 0.3), seed + 1000) if with_shadow else []

        async def story(batcher: AnyBatcher) -> tuple[float, float]:
            inspections = open_loop(batcher, trace, UNHURRIED_S)
            if not beside:
                return quantile((await inspections).latencies_s, 0.99), 0.0
            ours, theirs = await asyncio.gather(inspections, open_loop(batcher, beside, 1.0, Lane.SHADOW))
            return quantile(ours.latencies_s, 0.99), len(theirs.latencies_s) / ours.wall_s

        return self.run("passline", story, UNHURRIED_S)


async def _lone(batcher: AnyBatcher, count: int) -> float:
    outcomes = Outcomes()
    for _ in range(count):
        await submit_counted(batcher, time.monotonic(), UNHURRIED_S, Lane.INSPECTION, outcomes)
    return statistics.median(outcomes.latencies_s)


@dataclass(frozen=True)
class CpuRun:
    """A batcher around an engine that works on the CPU: 16 clients, then one. Latencies in ms."""

    kind: BatcherKind
    share: float
    p50_ms: float
    p99_ms: float
    lone_p50_ms: float
    mean_batch: float


def cpu_run(kind: BatcherKind, engine: BusyCpu, streams: int, seconds: float) -> CpuRun:
    """16 clients around a CPU engine of `streams` calls at once; share: of what it does alone, measured just before."""
    limit = engine.limit(streams, seconds / 4)
    table = measure_latencies(engine.run, lambda size: PICTURE[None].repeat(size, axis=0), (1, 2, 4, 8))
    sizes: list[int] = []

    async def story() -> tuple[Outcomes, float]:
        batcher = make_batcher(
            kind,
            engine.run,
            max_batch=8,
            max_queue=64,
            streams=streams,
            table=table,
            deadline_s=UNHURRIED_S,
            on_batch=sizes.append,
        )
        try:
            outcomes = await closed_loop(batcher, 16, seconds)
            return outcomes, await _lone(batcher, 50)
        finally:
            batcher.close()

    outcomes, lone_s = asyncio.run(story())
    return CpuRun(
        kind=kind,
        share=len(outcomes.latencies_s) / outcomes.wall_s / limit,
        p50_ms=quantile(outcomes.latencies_s, 0.5) * 1e3,
        p99_ms=quantile(outcomes.latencies_s, 0.99) * 1e3,
        lone_p50_ms=lone_s * 1e3,
        mean_batch=statistics.mean(sizes),
    )


def submit_cost_s(kind: BatcherKind, clients: int, count: int) -> float:
    """CPU time per picture of the way through the batcher and back, with an engine that takes no time."""
    table = LatencyTable.of({1: 1e-4, 8: 2e-4})

    async def story() -> float:
        batcher = make_batcher(kind, lambda batch: batch, max_batch=8, max_queue=64, table=table)
        loop = asyncio.get_running_loop()

        async def client() -> None:
            for _ in range(count // clients):
                await batcher.submit(PICTURE, expires_at=loop.time() + UNHURRIED_S)

        await client()
        before = time.process_time()
        await asyncio.gather(*(client() for _ in range(clients)))
        spent = time.process_time() - before
        batcher.close()
        return spent / (count // clients * clients)

    return asyncio.run(story())


def worst(values: Sequence[float]) -> float:
    """The largest; nan where there is none."""
    return max(values, default=float("nan"))
