"""One start with a TensorRT engine, to be run in a process of its own, and what is measured after it."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from data_contracts.bundle import MANIFEST_FILE, BundleManifest, ModelSpec, Precision
from data_contracts.errors import EngineError, Overloaded
from serving import ort
from serving.batching import Batcher
from serving.engine_cache import EngineFolder
from serving.engine_onnxruntime import PROVIDER_NAMES, session_options
from serving.engine_tensorrt import engine_key, providers_for
from serving.engine_types import model_file_for
from serving.engines import Engine, EngineOptions, Provider, Tensor, open_engine
from serving.latency import LatencyTable

SIZES = (1, 2, 4, 8, 16, 32)
CALLS, QUICK_CALLS = 50, 5
LOADS = (0.5, 0.8)
LOAD_S, QUICK_LOAD_S = 15.0, 2.0
MOST_PER_S = 2000.0
"""Arrivals that one event loop sends in time beside the batcher; a faster engine is loaded by this much only."""
DEADLINE_S = 1.0
PROFILED_CALLS = 3


@dataclass(frozen=True)
class Wish:
    """Which engine is started from a bundle's folder, and whether it is measured; `cache` outlives the process."""

    files: Path
    precision: Precision
    cache: Path
    quick: bool
    measures: bool = False
    provider: Provider = "tensorrt"

    @property
    def options(self) -> EngineOptions:
        """As the engine's own options; no fallback, for another engine would tell nothing."""
        return EngineOptions(
            self.provider, allow_fallback=False, threads=1, precision=self.precision, engine_cache=self.cache,
            max_batch=max(SIZES),
        )  # fmt: skip


@dataclass(frozen=True)
class Placement:
    """Where the nodes of a graph ran, by provider: how many, and microseconds in them."""

    nodes: Mapping[str, int] = field(default_factory=dict)
    micros: Mapping[str, int] = field(default_factory=dict)

    def share(self, provider: Provider) -> float:
        """Share of the time that was spent in nodes of this provider."""
        total = sum(self.micros.values())
        return self.micros.get(PROVIDER_NAMES[provider], 0) / total if total else 0.0


@dataclass(frozen=True)
class Load:
    """Latency from arrival to answer, at arrivals by chance (Poisson) of `load` times what the engine can do."""

    load: float
    per_s: float
    p50_ms: float
    p99_ms: float
    refused: int


@dataclass(frozen=True)
class Start:
    """What one start took and, where it was measured, gave. `batch_s`: seconds per call by batch size."""

    open_s: float
    providers: tuple[str, ...]
    placement: Placement = field(default_factory=Placement)
    batch_s: Mapping[int, float] = field(default_factory=dict)
    loads: tuple[Load, ...] = ()


def start(wish: Wish) -> Start:
    """Open the engine as the service does. Raises EngineError when it cannot be had."""
    spec = BundleManifest.model_validate_json((wish.files / MANIFEST_FILE).read_bytes()).model
    started = perf_counter()
    engine = open_engine(wish.files, spec, wish.options)
    open_s = perf_counter() - started
    providers = tuple(engine._session.get_providers())  # type: ignore[attr-defined]
    if not wish.measures:
        return Start(open_s, providers)
    batch_s = {size: _call_s(engine, batch_of(spec, size), QUICK_CALLS if wish.quick else CALLS) for size in SIZES}
    table = LatencyTable.of(batch_s)
    loads = tuple(asyncio.run(under_load(engine, table, spec, load, quick=wish.quick)) for load in LOADS)
    return Start(open_s, providers, placement_of(wish, spec), batch_s, loads)


def _call_s(engine: Engine, batch: Tensor, calls: int) -> float:
    """Median seconds of a call; the first one is not counted."""
    times = []
    for _ in range(1 + calls):
        started = perf_counter()
        engine.run(batch)
        times.append(perf_counter() - started)
    return statistics.median(times[1:])


def batch_of(spec: ModelSpec, size: int) -> Tensor:
    """Random pictures, float32 (size, 3, height, width)."""
    width, height = spec.input.wh
    return np.random.default_rng(size).random((size, 3, height, width), np.float32)


# --- where the nodes run ------------------------------------------------------------------------------------------


def placement_of(wish: Wish, spec: ModelSpec) -> Placement:
    """Run a profiled session of the same engine, from the cache."""
    model_file = model_file_for(wish.files, wish.precision)
    with tempfile.TemporaryDirectory(prefix="passline-profile-") as folder:
        options = session_options(1)
        options.enable_profiling = True
        options.profile_file_prefix = f"{folder}/profile"
        session = ort.onnxruntime.InferenceSession(str(model_file), options, _providers(wish, model_file, spec))
        for _ in range(PROFILED_CALLS):
            session.run([spec.output.tensor], {spec.input.tensor: batch_of(spec, 1)})
        return read_profile(json.loads(Path(session.end_profiling()).read_text()))


def _providers(wish: Wish, model_file: Path, spec: ModelSpec) -> Any:
    if wish.provider != "tensorrt":
        return [PROVIDER_NAMES[wish.provider]]
    return providers_for(spec, wish.options, EngineFolder(wish.cache, engine_key(model_file, spec, wish.options)))


def read_profile(events: Iterable[Mapping[str, Any]]) -> Placement:
    """Count the nodes that ran: ONNX Runtime notes the provider of each in its profile."""
    names: dict[str, set[str]] = {}
    micros: dict[str, int] = {}
    for event in events:
        provider = event.get("args", {}).get("provider")
        if event.get("cat") == "Node" and provider and event["name"].endswith("_kernel_time"):
            names.setdefault(provider, set()).add(event["name"])
            micros[provider] = micros.get(provider, 0) + int(event["dur"])
    return Placement({provider: len(found) for provider, found in names.items()}, micros)


# --- under load ---------------------------------------------------------------------------------------------------


async def under_load(engine: Engine, table: LatencyTable, spec: ModelSpec, load: float, *, quick: bool) -> Load:
    """Send pictures through the batcher by chance, on average `load` times what the engine can do."""
    largest = table.points[-1][0]
    capacity_per_s = max(size / seconds for size, seconds in table.points)
    per_s = min(load * capacity_per_s, MOST_PER_S)
    batcher = Batcher(engine.run, max_batch=largest, max_queue=16 * largest, streams=engine.streams, table=table)
    picture, duration_s = batch_of(spec, 1)[0], QUICK_LOAD_S if quick else LOAD_S
    loop, latencies, refused = asyncio.get_running_loop(), list[float](), 0
    gaps = np.random.default_rng(0).exponential(1 / per_s, max(1, int(per_s * duration_s)))
    due = loop.time() + np.cumsum(gaps)

    async def send(at: float) -> None:
        nonlocal refused
        await asyncio.sleep(at - loop.time())
        try:
            await batcher.submit(picture, expires_at=at + DEADLINE_S)
            latencies.append(loop.time() - at)
        except (Overloaded, TimeoutError):
            refused += 1

    await asyncio.gather(*(send(float(at)) for at in due))
    batcher.close()
    if not latencies:
        raise EngineError(f"no picture of {len(due)} was answered at {load:.0%} load")
    p50, p99 = (float(np.percentile(latencies, rank)) * 1000 for rank in (50, 99))
    return Load(per_s / capacity_per_s, per_s, p50, p99, refused)
