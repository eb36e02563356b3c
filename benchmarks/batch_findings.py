"""What a run of `benchmarks.batching` found out, judged and laid out for people."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.batch_cells import KINDS, Cell, CpuRun, worst
from benchmarks.report import Table

TAKT_S = 0.2
TIGHT_S = 0.1


@dataclass(frozen=True)
class ShadowPair:
    """Inspections without and with a busy shadow lane, on the same trace."""

    load: float
    alone_p99_ms: float
    beside_p99_ms: float
    shadow_per_s: float

    @property
    def ratio(self) -> float:
        """How far shadow moved the p99."""
        return self.beside_p99_ms / self.alone_p99_ms


@dataclass(frozen=True)
class Findings:
    """All that was measured. Cells with a deadline of 10 s refuse nothing; those at the takt do."""

    cells: list[Cell] = field(default_factory=list)
    at_takt: list[Cell] = field(default_factory=list)
    tight: list[Cell] = field(default_factory=list)
    saturation: dict[str, list[float]] = field(default_factory=dict)
    lone_ms: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    shadow: list[ShadowPair] = field(default_factory=list)
    cpu: list[CpuRun] = field(default_factory=list)
    cost_us: dict[str, dict[str, float]] = field(default_factory=dict)
    sleep_excess_us: float = 0.0


def p99_vs_ideal(cells: Sequence[Cell], kind: str) -> float:
    """The worst cell; in a cell, the median over its traces of p99 over the ideal's p99 on the same trace."""
    return worst([statistics.median(one.p99_ratio for one in traces) for traces in _grouped(cells, kind).values()])


def extra_refusals(cells: Sequence[Cell], kind: str) -> float:
    """The worst cell; in a cell, the share of pictures that the ideal would have answered in time on top."""
    return worst(
        [
            sum(one.missed - one.ideal_missed for one in traces) / sum(one.count for one in traces)
            for traces in _grouped(cells, kind).values()
        ]
    )


def lone_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Median over the rounds of a lone client's p50 after the bursts over that before them."""
    return statistics.median(after / before for before, after in pairs) if pairs else float("nan")


def shadow_ratio(pairs: Sequence[ShadowPair]) -> float:
    """The worst load; at a load, the median over its rounds."""
    loads = {one.load for one in pairs}
    return worst([statistics.median(one.ratio for one in pairs if one.load == load) for load in loads])


def _grouped(cells: Sequence[Cell], kind: str) -> dict[tuple[str, float], list[Cell]]:
    groups: dict[tuple[str, float], list[Cell]] = {}
    for cell in cells:
        if cell.kind == kind:
            groups.setdefault((cell.pattern, cell.load), []).append(cell)
    return groups


def cell_table(cells: Sequence[Cell]) -> Table:
    """One row per pattern and load; numbers are medians over the traces."""
    rows = []
    for (pattern, load), ours in _grouped(cells, "passline").items():
        theirs = _grouped(cells, "bentoml").get((pattern, load), [])
        rows.append(
            (
                f"{pattern} {load:.0%}",
                _both(ours, "ideal_p50_ms", "ideal_p99_ms"),
                *(text for group in (ours, theirs) for text in _latency_cells(group)),
            )
        )
    return Table(
        ("no refusals", "ideal p50 / p99 ms", "passline ms", "to ideal", "bentoml ms", "to ideal"), tuple(rows)
    )


def _latency_cells(group: Sequence[Cell]) -> tuple[str, str]:
    if not group:
        return "", ""
    return _both(group, "p50_ms", "p99_ms"), f"{statistics.median(one.p99_ratio for one in group):.3f}"


def _both(group: Sequence[Cell], *names: str) -> str:
    return " / ".join(f"{statistics.median(getattr(one, name) for one in group):.1f}" for name in names)


def refusal_table(findings: Findings) -> Table:
    """Pictures not answered in time, refused or late, in per cent; each batcher beside the ideal on its own traces."""
    rows = []
    for name, cells in ((f"{TAKT_S * 1e3:g} ms", findings.at_takt), (f"{TIGHT_S * 1e3:g} ms", findings.tight)):
        for pattern, load in _grouped(cells, "passline"):
            texts = []
            for kind in KINDS:
                group = _grouped(cells, kind)[pattern, load]
                total = sum(one.count for one in group) / 100
                missed, ideal = sum(one.missed for one in group), sum(one.ideal_missed for one in group)
                texts += [f"{missed / total:.2f}", f"{ideal / total:.2f}"]
            rows.append((f"{pattern} {load:.0%} within {name}", *texts))
    return Table(("missed, %", "passline", "ideal", "bentoml", "ideal"), tuple(rows))


def small_tables(findings: Findings) -> tuple[Table, Table, Table]:
    """Saturation, lone clients and cost; shadow; the CPU engine."""
    kinds = Table(
        ("fake GPU", "saturation", "lone p50 before / after bursts ms", "CPU per picture us: 1, 16 clients"),
        tuple(
            (
                kind,
                f"{statistics.median(findings.saturation[kind]):.3f}",
                " / ".join(f"{statistics.median(side):.2f}" for side in zip(*findings.lone_ms[kind], strict=True)),
                ", ".join(f"{value:.0f}" for value in findings.cost_us[kind].values()),
            )
            for kind in findings.saturation
        ),
    )
    shadow = Table(
        ("inspections at", "p99 ms alone / beside shadow", "ratio", "shadow pictures/s"),
        tuple(
            (f"{one.load:.0%}", f"{one.alone_p99_ms:.1f} / {one.beside_p99_ms:.1f}", f"{one.ratio:.3f}",
             f"{one.shadow_per_s:.0f}")
            for one in findings.shadow
        ),
    )  # fmt: skip
    cpu = Table(
        ("CPU engine, 16 clients", "share of engine", "p50 / p99 ms", "lone p50 ms", "mean batch"),
        tuple(
            (one.kind, f"{one.share:.3f}", f"{one.p50_ms:.1f} / {one.p99_ms:.1f}", f"{one.lone_p50_ms:.1f}",
             f"{one.mean_batch:.1f}")
            for one in findings.cpu
        ),
    )  # fmt: skip
    return kinds, shadow, cpu


def notes(findings: Findings) -> tuple[str, ...]:
    """How exact the load and the engine were."""
    generator = [one.generator_late_p99_ms for one in findings.cells]
    engine = [one.engine_over_p99_ms for one in findings.cells]
    if not generator:
        return ()
    return (
        f"sleeps end {findings.sleep_excess_us:.0f} us late here; the fake engine takes that off",
        f"generator late at p99: median {statistics.median(generator):.2f} ms, worst run {max(generator):.2f} ms",
        f"engine calls too long at p99: median {statistics.median(engine):.2f} ms, worst run {max(engine):.2f} ms",
        "a generator late by many milliseconds met a machine that stood still; bars are medians over traces",
    )
