"""The form of every benchmark: `python -m benchmarks.NAME [--quick] [--json FILE]`.

It prints tables, writes one JSON object and exits 0 when it could measure, whether or not the bars hold, and 2 when it
could not. A full run also writes `<PASSLINE_HOME or var>/bench/NAME.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pydantic import Field, JsonValue

from benchmarks.machine import Machine, read_machine, versions_of
from data_contracts.base import Contract
from data_contracts.errors import PasslineError
from data_contracts.release import now

COULD_NOT_MEASURE = 2
STOPPED = 130
MISSING = "missing"


class Bar(Contract):
    """A claim: `value` against `limit`. `holds` is null where this run cannot decide it."""

    name: str = Field(min_length=1)
    value: float | None = Field(allow_inf_nan=False)
    limit: float = Field(allow_inf_nan=False)
    holds: bool | None


class BenchmarkReport(Contract):
    """What one run of a benchmark writes."""

    name: str
    quick: bool
    finished_at: str
    machine: Machine
    versions: dict[str, str] = Field(description="Package to version; a peer that is not installed is 'missing'.")
    missing: tuple[str, ...] = Field(description="Peers that are not installed here, so nothing is said about them.")
    settings: dict[str, JsonValue]
    samples: dict[str, JsonValue] = Field(description="What was measured, raw.")
    bars: tuple[Bar, ...]
    notes: tuple[str, ...] = Field(description="What a reader must know to judge the numbers.")


@dataclass(frozen=True)
class Table:
    """Rows for people; all cells are text."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Measured:
    """What a benchmark found out. Settings and samples are what JSON can hold."""

    settings: dict[str, Any]
    samples: dict[str, Any]
    bars: tuple[Bar, ...]
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its name, what it measures with, and how. `measure` is told whether the run is a quick one."""

    name: str
    measure: Callable[[bool], Measured]
    packages: tuple[str, ...] = ()
    peers: tuple[str, ...] = field(default=())


def at_most(name: str, value: float | None, limit: float, *, decided: bool) -> Bar:
    """A number that must not pass `limit`. Decided without a finite number, it does not hold."""
    return _bar(name, value, limit, lambda number: number <= limit, decided)


def at_least(name: str, value: float | None, limit: float, *, decided: bool) -> Bar:
    """A number that must reach `limit`. Decided without a finite number, it does not hold."""
    return _bar(name, value, limit, lambda number: number >= limit, decided)


def _bar(name: str, value: float | None, limit: float, reaches: Callable[[float], bool], decided: bool) -> Bar:
    number = value if value is not None and math.isfinite(value) else None
    holds = (number is not None and reaches(number)) if decided else None
    return Bar(name=name, value=number, limit=limit, holds=holds)


def format_table(table: Table) -> str:
    """Aligned text columns under a head.

    >>> print(format_table(Table(("stage", "s"), (("train", "141.2"), ("export", "3.1")))))
    stage   s
    train   141.2
    export  3.1
    """
    lines = (table.head, *table.rows)
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def bar_table(bars: Iterable[Bar]) -> Table:
    """Bars as people read them."""
    words = {True: "holds", False: "DOES NOT HOLD", None: "not decided here"}
    rows = tuple(
        (bar.name, "none" if bar.value is None else f"{bar.value:.4g}", f"{bar.limit:.4g}", words[bar.holds])
        for bar in bars
    )
    return Table(("bar", "value", "limit", ""), rows)


def run_benchmark(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; the exit status. Ctrl-C and SIGTERM unwind it, so that it can stop what it started."""
    bench_folder = Path(os.environ.get("PASSLINE_HOME", "var")).absolute() / "bench"
    given = _parser(benchmark.name).parse_args(arguments)
    signal.signal(signal.SIGTERM, _unwind)
    machine = read_machine()
    try:
        measured = benchmark.measure(given.quick)
    except PasslineError as error:
        print(f"{benchmark.name}: could not measure: {error}", file=sys.stderr)
        return COULD_NOT_MEASURE
    except KeyboardInterrupt:
        print(f"{benchmark.name}: stopped", file=sys.stderr)
        return STOPPED
    report = _report(benchmark, measured, machine, quick=given.quick)
    _print(report, measured.tables)
    targets = [given.json] if given.json else []
    for target in targets if given.quick else [*targets, bench_folder / f"{benchmark.name}.json"]:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(report.to_json(), encoding="utf-8")
        print(f"written: {target}")
    return 0


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--quick", action="store_true", help="end within 50 seconds; bars that need longer stay open")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    return parser


def _unwind(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _report(benchmark: Benchmark, measured: Measured, before: Machine, *, quick: bool) -> BenchmarkReport:
    versions = versions_of((*benchmark.packages, *benchmark.peers), MISSING)
    return BenchmarkReport(
        name=benchmark.name,
        quick=quick,
        finished_at=now().isoformat(timespec="seconds"),
        machine=before.model_copy(update={"load_after": os.getloadavg()}),
        versions=versions,
        missing=tuple(peer for peer in benchmark.peers if versions[peer] == MISSING),
        settings=_as_json(measured.settings),
        samples=_as_json(measured.samples),
        bars=measured.bars,
        notes=measured.notes,
    )


def _as_json(values: dict[str, Any]) -> dict[str, JsonValue]:
    """Values as JSON holds them: a tuple becomes a list. Raises ValueError for what is no number."""
    content: dict[str, JsonValue] = json.loads(json.dumps(values, allow_nan=False))
    return content


def _print(report: BenchmarkReport, tables: Iterable[Table]) -> None:
    for table in (*tables, bar_table(report.bars)):
        print(format_table(table), end="\n\n")
    for peer in report.missing:
        print(f"missing: {peer} is not installed here")
    for note in report.notes:
        print(f"note: {note}")
    machine = report.machine
    load = f"load {machine.load_before[0]:.1f} before, {machine.load_after[0]:.1f} after"
    print(f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib:.0f} GiB, {load}")
