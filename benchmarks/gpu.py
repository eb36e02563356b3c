"""One run of under eight minutes for the day a GPU is at hand: is it really TensorRT, and what does it give?

For FP16, INT8 (from a Q/DQ file) and FP32 in turn, each start in a process of its own: the engine is built, then
loaded from its cache; where the model's nodes were placed; seconds per batch size; latency under load through the
batcher. Without a GPU it says so and ends.

The model is YOLOv8n at 640 px with made-up weights, made where torch is installed, or that of `--bundle DIR`, which
needs nothing but the serving environment and requirements/gpu.txt. The INT8 file is the bundle's own; without one it
is made where the package onnx is installed, else INT8 is left out.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu_model import model_files
from benchmarks.gpu_start import SIZES, Placement, Start, Wish, start
from benchmarks.own_process import in_own_process
from benchmarks.report import Bar, Benchmark, Measured, Table, at_least, at_most, run_benchmark
from data_contracts.bundle import Precision
from data_contracts.errors import EngineError, PasslineError, Problem
from serving import gpu
from serving.engine_types import Unusable

Starts = tuple[Start, Start]
"""The first start, which builds the engine, and the second, which finds it."""

BUDGET_S, QUICK_BUDGET_S = 460.0, 45.0
"""Seconds after which what is not measured stays so."""
ORDER: tuple[Precision, ...] = ("fp16", "int8", "fp32")
SECOND_START_LIMIT = 0.5
TENSORRT_SHARE_LIMIT = 0.95


def measure(quick: bool, bundle: Path | None) -> Measured:
    """The whole script."""
    try:
        facts = gpu.read_gpu()
    except Unusable as error:
        return without_gpu(str(error))
    home = Path(os.environ.get("PASSLINE_HOME", "var")).absolute() / "bench"
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="passline-gpu-") as scratch:
        files, notes = in_own_process(model_files, bundle, home, Path(scratch) / "files")
        until = started + (QUICK_BUDGET_S if quick else BUDGET_S)
        starts, missing = try_all(files, Path(scratch) / "engines", until, quick=quick)
    words = (f"{facts.name}, capability {facts.capability}, driver {facts.driver}", *notes, *missing)
    return conclude(starts, words, quick=quick)


def try_all(files: Path, cache: Path, until: float, *, quick: bool) -> tuple[dict[Precision, Starts], list[str]]:
    """First and second start of each precision, each in a fresh process; and what could not be had, in words.

    Raises EngineError when there is nothing at all.
    """
    found, missing = dict[Precision, Starts](), list[str]()
    for precision in ORDER:
        wish = Wish(files, precision, cache, quick=quick)
        try:
            _say(f"TensorRT {precision}: first start, which builds the engine")
            first = in_own_process(start, wish, limit_s=_left_s(until))
            _say(f"TensorRT {precision}: second start, and measurements")
            second = in_own_process(start, replace(wish, measures=True), limit_s=_left_s(until))
            found[precision] = (first, second)
        except PasslineError as error:
            missing.append(f"{precision}: {error}")
    if not found:
        raise EngineError(Problem("TensorRT", "an engine", "; ".join(missing), "See requirements/gpu.txt."))
    return found, missing


def _left_s(until: float) -> float:
    return max(0.0, until - time.monotonic())


def without_gpu(reason: str) -> Measured:
    """Nothing was measured, and nothing is claimed."""
    return Measured(
        settings={}, samples={}, bars=_bars(None, None, decided=False), notes=(f"nothing measured: {reason}",)
    )


def conclude(starts: Mapping[Precision, Starts], words: Sequence[str], *, quick: bool) -> Measured:
    """Bars are about the worst of the precisions."""
    ratios = [second.open_s / first.open_s for first, second in starts.values()]
    shares = [second.placement.share("tensorrt") for _, second in starts.values()]
    samples: dict[str, Any] = {
        name: {"first": asdict(one), "second": asdict(two)} for name, (one, two) in starts.items()
    }
    return Measured(
        settings={"sizes": list(SIZES)},
        samples=samples,
        bars=_bars(max(ratios), min(shares), decided=not quick),
        tables=(_start_table(starts), _batch_table(starts), _load_table(starts)),
        notes=tuple(words),
    )


def _bars(ratio: float | None, share: float | None, *, decided: bool) -> tuple[Bar, ...]:
    return (
        at_most("second_start", ratio, SECOND_START_LIMIT, decided=decided),
        at_least("tensorrt_time_share", share, TENSORRT_SHARE_LIMIT, decided=decided),
    )


def _start_table(starts: Mapping[Precision, Starts]) -> Table:
    rows = tuple(
        (name, f"{first.open_s:.1f}", f"{second.open_s:.1f}", first.providers[0], _placed(second.placement))
        for name, (first, second) in starts.items()
    )
    return Table(("TensorRT", "first start, s", "second start, s", "session's first provider", "nodes"), rows)


def _placed(placement: Placement) -> str:
    return ", ".join(f"{count} {provider}" for provider, count in sorted(placement.nodes.items()))


def _batch_table(starts: Mapping[Precision, Starts]) -> Table:
    rows = tuple(
        (str(size), *(_cell(second, size) for _, second in starts.values()))
        for size in SIZES
    )  # fmt: skip
    return Table(("batch, ms (pictures/s)", *starts), rows)


def _cell(measured: Start, size: int) -> str:
    seconds = measured.batch_s.get(size)
    return "" if seconds is None else f"{seconds * 1000:.2f} ({size / seconds:.0f})"


def _load_table(starts: Mapping[Precision, Starts]) -> Table:
    rows = tuple(
        (name, f"{one.per_s:.0f}", f"{one.load:.0%}", f"{one.p50_ms:.2f}", f"{one.p99_ms:.2f}", str(one.refused))
        for name, (_, second) in starts.items()
        for one in second.loads
    )
    return Table(("through the batcher", "arrivals/s", "of capacity", "p50, ms", "p99, ms", "refused"), rows)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--bundle", type=Path)
    own, rest = parser.parse_known_args(arguments)
    if {"-h", "--help"} & set(rest):
        print(__doc__)
    return run_benchmark(
        Benchmark("gpu", partial(measure, bundle=own.bundle), ("onnxruntime-gpu", "tensorrt-cu13", "onnx")), rest
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
