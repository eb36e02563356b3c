"""How fast engines are, side by side: each round measures all of them, so a machine that slows down slows all."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

from data_contracts.bundle import ModelSpec, Precision
from data_contracts.errors import PasslineError
from serving.engines import Engine, EngineOptions, EnginePossibility, Provider, Tensor, open_engine

Kind = tuple[Provider, Precision]
REFERENCE: Kind = ("cpu", "fp32")
"""FP32 ONNX Runtime on the CPU."""
LONE_CALLS = 5


@dataclass(frozen=True)
class Way:
    """An engine and how it shares the CPUs: `threads` for one call, `streams` calls at once."""

    kind: Kind
    threads: int
    streams: int

    def __str__(self) -> str:
        return f"{' '.join(self.kind)}, {self.threads} x {self.streams}"


@dataclass
class Speed:
    """One number per round: pictures per second with all streams busy, and the median call of a lone caller."""

    rates: list[float] = field(default_factory=list)
    lone_ms: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Pictures per second, median of the rounds."""
        return statistics.median(self.rates)


def ways(possible: Iterable[EnginePossibility], cpus: int) -> tuple[Way, ...]:
    """Each usable engine with one thread per call and a call per CPU, and with all CPUs for one call.

    >>> [str(way) for way in ways([EnginePossibility("cpu", "fp32")], 2)]
    ['cpu fp32, 1 x 2', 'cpu fp32, 2 x 1']
    """
    layouts = dict.fromkeys([(1, cpus), (cpus, 1)])
    return tuple(
        Way((one.provider, one.precision), threads, streams)
        for one in possible
        if not one.reason
        for threads, streams in layouts
    )


def open_way(way: Way, files: Path, spec: ModelSpec) -> Engine:
    """The engine of a way, warm. Raises EngineError when it cannot be had."""
    provider, precision = way.kind
    engine = open_engine(
        files, spec, EngineOptions(provider, allow_fallback=False, threads=way.threads, streams=way.streams,
                                   precision=precision)
    )  # fmt: skip
    width, height = spec.input.wh
    _together(engine, np.zeros((1, 3, height, width), np.float32), way.streams, 0.0)
    return engine


def open_ways(wanted: Iterable[Way], files: Path, spec: ModelSpec) -> tuple[dict[Way, Engine], dict[Way, str]]:
    """The engines that open, and why the others do not."""
    opened, failed = dict[Way, Engine](), dict[Way, str]()
    for way in wanted:
        try:
            opened[way] = open_way(way, files, spec)
        except PasslineError as error:
            failed[way] = str(error)
    return opened, failed


def measure_speeds(engines: Mapping[Way, Engine], batch: Tensor, rounds: int, seconds: float) -> dict[Way, Speed]:
    """All engines, `rounds` times, in turn: forwards, then backwards."""
    speeds = {way: Speed() for way in engines}
    for number in range(rounds):
        for way in list(engines)[:: 1 if number % 2 == 0 else -1]:
            speeds[way].rates.append(_together(engines[way], batch, way.streams, seconds))
            speeds[way].lone_ms.append(_alone_ms(engines[way], batch))
    return speeds


def _together(engine: Engine, batch: Tensor, callers: int, seconds: float) -> float:
    """Pictures per second of `callers` threads that each call one by one until the time is up: twice at least."""
    calls = [0] * callers
    started = perf_counter()

    def call(number: int) -> None:
        while calls[number] < 2 or perf_counter() - started < seconds:
            engine.run(batch)
            calls[number] += 1

    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(calls) * len(batch) / (perf_counter() - started)


def _alone_ms(engine: Engine, batch: Tensor) -> float:
    times = []
    for _ in range(LONE_CALLS):
        started = perf_counter()
        engine.run(batch)
        times.append((perf_counter() - started) * 1000)
    return statistics.median(times)


def fastest(speeds: Mapping[Way, Speed], kinds: Sequence[Kind]) -> Way | None:
    """The fastest way of these engines, by its median; None when none of them was measured."""
    return max((way for way in speeds if way.kind in kinds), key=lambda way: speeds[way].rate, default=None)


def gain(speeds: Mapping[Way, Speed], way: Way | None) -> float | None:
    """Throughput over that of FP32 ONNX Runtime at its own best layout: the median of the rounds' ratios.

    >>> slow, fast = Way(REFERENCE, 1, 2), Way(("openvino", "bf16"), 1, 2)
    >>> gain({slow: Speed([10, 20, 10]), fast: Speed([20, 30, 22])}, fast)
    2.0
    """
    reference = fastest(speeds, [REFERENCE])
    if way is None or reference is None:
        return None
    pairs = zip(speeds[way].rates, speeds[reference].rates, strict=True)
    return statistics.median(ours / theirs for ours, theirs in pairs)
