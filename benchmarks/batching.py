"""Passline's batcher against an ideal queue and against BentoML's dispatcher.

A fake GPU engine takes 8 ms + 1 ms per picture. The ideal queue costs nothing, never rests while something waits, and
sees the same arrivals. BentoML's dispatcher gets the same traces through the same interface.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import asdict, dataclass, replace

from benchmarks.batch_cells import (
    CAPACITY,
    KINDS,
    LOADS,
    MAX_BATCH,
    PATTERNS,
    UNHURRIED_S,
    WINDOW_S,
    Bench,
    Cell,
    cpu_run,
    submit_cost_s,
)
from benchmarks.batch_findings import (
    TAKT_S,
    TIGHT_S,
    Findings,
    ShadowPair,
    cell_table,
    extra_refusals,
    lone_ratio,
    notes,
    p99_vs_ideal,
    refusal_table,
    shadow_ratio,
    small_tables,
)
from benchmarks.batch_load import BusyCpu, sleep_excess_s
from benchmarks.report import Bar, Benchmark, Measured, at_least, at_most, run_benchmark
from serving.cpus import threads_from_quota

CPU_PICTURE_S = 0.006


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    count: int
    traces: dict[str, int]
    takt_traces: int
    rounds: int
    closed_s: float
    lone: int


FULL = Plan(count=2000, traces={"passline": 3, "bentoml": 1}, takt_traces=5, rounds=3, closed_s=4.0, lone=100)
QUICK = Plan(count=250, traces={"passline": 1, "bentoml": 1}, takt_traces=1, rounds=1, closed_s=1.0, lone=30)


def measure(quick: bool) -> Measured:
    """The whole benchmark."""
    plan = QUICK if quick else FULL
    bench = Bench(sleep_excess_s())
    streams = min(2, threads_from_quota(workers=1))
    engine = BusyCpu(CPU_PICTURE_S)
    findings = Findings(
        cells=_cells(bench, plan, UNHURRIED_S),
        at_takt=_cells(bench, replace(plan, traces={"passline": plan.takt_traces, "bentoml": 1}), TAKT_S),
        tight=[
            bench.cell(kind, "bursty", 0.9, count=plan.count, seed=seed, deadline_s=TIGHT_S)
            for seed in range(plan.rounds)
            for kind in KINDS
        ],
        saturation={kind: [bench.saturation(kind, plan.closed_s) for _ in range(plan.rounds)] for kind in KINDS},
        lone_ms={kind: [_ms(bench.lone_after_burst(kind, plan.lone)) for _ in range(plan.rounds)] for kind in KINDS},
        shadow=[_shadow_pair(bench, load, plan.count, seed) for load in (0.3, 0.7) for seed in range(plan.rounds)],
        cpu=[cpu_run(kind, engine, streams, plan.closed_s) for _ in range(plan.rounds) for kind in KINDS],
        cost_us={
            kind: {str(clients): submit_cost_s(kind, clients, 400 * clients) * 1e6 for clients in (1, 16)}
            for kind in KINDS
        },
        sleep_excess_us=bench.sleep_excess_s * 1e6,
    )
    return conclude(findings, streams, quick=quick)


def _cells(bench: Bench, plan: Plan, deadline_s: float) -> list[Cell]:
    return [
        bench.cell(kind, pattern, load, count=plan.count, seed=seed, deadline_s=deadline_s)
        for seed in range(max(plan.traces.values()))
        for pattern in PATTERNS
        for load in LOADS
        for kind in KINDS
        if seed < plan.traces[kind]
    ]


def _ms(pair: tuple[float, float]) -> tuple[float, float]:
    return pair[0] * 1e3, pair[1] * 1e3


def _shadow_pair(bench: Bench, load: float, count: int, seed: int) -> ShadowPair:
    alone_s, _ = bench.shadow(load, count, seed, with_shadow=False)
    beside_s, per_s = bench.shadow(load, count, seed, with_shadow=True)
    return ShadowPair(load, alone_s * 1e3, beside_s * 1e3, per_s)


def conclude(findings: Findings, streams: int, *, quick: bool) -> Measured:
    """Bars and tables. A quick run has too few pictures to decide any bar."""
    return Measured(
        settings={
            "max_batch": MAX_BATCH,
            "capacity_per_s": CAPACITY,
            "window_s": WINDOW_S,
            "deadlines_s": [UNHURRIED_S, TAKT_S, TIGHT_S],
            "cpu_engine": f"hashing, {CPU_PICTURE_S * 1e3:g} ms per picture, {streams} calls at once",
        },
        samples=asdict(findings),
        bars=bars(findings, decided=not quick),
        tables=(cell_table(findings.cells), refusal_table(findings), *small_tables(findings)),
        notes=notes(findings),
    )


def bars(findings: Findings, *, decided: bool) -> tuple[Bar, ...]:
    """The claims, for Passline's batcher."""
    saturation = findings.saturation.get("passline", [])
    return (
        at_most("p99_vs_ideal", p99_vs_ideal(findings.cells, "passline"), 1.15, decided=decided),
        at_least("saturation", statistics.median(saturation) if saturation else None, 0.95, decided=decided),
        at_most("extra_refusals", extra_refusals(findings.at_takt, "passline"), 0.001, decided=decided),
        at_most("lone_after_burst", lone_ratio(findings.lone_ms.get("passline", [])), 1.1, decided=decided),
        at_most("shadow_p99_ratio", shadow_ratio(findings.shadow), 1.10, decided=decided),
    )


if __name__ == "__main__":
    PACKAGES = ("bentoml", "numpy")
    sys.exit(run_benchmark(Benchmark("batching", measure, PACKAGES)))
