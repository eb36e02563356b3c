"""A release in memory: loaded, warmed, proved on its golden pictures, with its own queue."""

from __future__ import annotations

import ctypes
import gc
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import cast

import psutil

from data_contracts.errors import BundleError, EngineError, Problem
from data_contracts.inspection import ReleaseRef
from data_contracts.release import LoadedRelease
from data_contracts.tuning import EngineChoice, Tuning
from serving.batch_policy import window_s
from serving.batching import AnyBatcher, make_batcher
from serving.bundle import Bundle
from serving.detector import Detector, check_golden, open_detector
from serving.engine_choice import REFERENCE, kind_of, wish_words
from serving.engines import EngineOptions, Provider
from serving.latency import LatencyTable, useful_batch
from serving.metrics import Metrics
from serving.settings import HostSettings
from serving.store import ReleaseStore
from serving.trial import first_problem
from serving.tuning import Tuner
from serving.warm_up import warm_between, warm_up

PIN_LESS = "Set PASSLINE_PROVIDER and PASSLINE_PRECISION to auto, or PASSLINE_ALLOW_FALLBACK=true to answer slower."
ON_CPU = frozenset({"cpu", "openvino"})
_log = logging.getLogger("passline.resident")


@dataclass(frozen=True, eq=False)
class Resident:
    """What answers requests. A request holds on to the one it was prepared for, also over a switch."""

    bundle: Bundle
    detector: Detector
    batcher: AnyBatcher
    load_s: float
    max_batch: int = 1
    tuning: Tuning | None = None

    @property
    def digest(self) -> str:
        """The bundle's digest."""
        return self.bundle.digest

    @property
    def ref(self) -> ReleaseRef:
        """How answers name it."""
        return ReleaseRef(digest=self.digest, name=self.bundle.manifest.name, version=self.bundle.manifest.version)

    @property
    def shares_cpus(self) -> bool:
        """Whether its engine runs on the CPUs that decode pictures."""
        return self.detector.engine.provider in ON_CPU

    @property
    def degraded(self) -> tuple[str, ...]:
        """What about its engine is not as wished."""
        return tuple(filter(None, (self.tuning.degraded if self.tuning else "", self.detector.engine.degraded)))

    @property
    def record(self) -> LoadedRelease:
        """How the worker's report names it."""
        manifest, engine = self.bundle.manifest, self.detector.engine
        return LoadedRelease(
            digest=self.digest,
            name=manifest.name,
            version=manifest.version,
            warm=True,
            load_s=self.load_s,
            provider=engine.provider,
            precision=engine.precision,
            threads=engine.threads,
            streams=engine.streams,
        )


Load = Callable[[str], Resident]
"""Gives the resident of a digest; raises PasslineError when it must not answer."""


def load_resident(store: ReleaseStore, settings: HostSettings, cpus: int, metrics: Metrics, digest: str) -> Resident:
    """Open the bundle, choose and open its engine, warm it up and check its golden pictures.

    `cpus` are those of this worker. Raises PasslineError when the release must not answer here.
    """
    started = perf_counter()
    bundle = store.bundle(digest)
    tuner = Tuner(store, settings, cpus, beside=is_answering(store))
    tuning = tuner.choose(bundle)
    if tuning.degraded and pins(settings):
        raise EngineError(Problem("engine", wish_words(settings), tuning.degraded, PIN_LESS))
    tuning, opened = open_proved(bundle, tuner, tuning)
    detector, table = opened.detector, opened.table
    # No larger than what was measured: every batch size in use is a warm one.
    max_batch = min(useful_batch(table, settings.max_batch), table.points[-1][0])
    warm_between(detector, max_batch, opened.warm)
    batcher = make_batcher(
        settings.batcher,
        detector.predict,
        max_batch=max_batch,
        max_queue=settings.max_queue,
        streams=detector.engine.streams,
        table=table,
        window_s=window_s(settings.batch_window_s, detector.engine.provider),
        deadline_s=settings.deadline_s,
        on_batch=metrics.batch_size.observe,
        on_queue=metrics.queued.set,
    )
    return_memory()  # of loading, and of batches that were tried and are not used
    return Resident(bundle, detector, batcher, perf_counter() - started, max_batch, tuning)


def is_answering(store: ReleaseStore) -> bool:
    """Whether a worker of this host, this one too, answers with a release now."""
    # A worker that was killed leaves its last report behind for a while.
    return any(worker.active is not None and psutil.pid_exists(worker.pid) for worker in store.workers())


def pins(settings: HostSettings) -> bool:
    """Whether the settings wish for an engine and take no other."""
    return bool(wish_words(settings)) and not settings.allow_fallback


@dataclass(frozen=True)
class Opened:
    """An engine that was proved, how long its calls take, and the batch sizes that it has run."""

    detector: Detector
    table: LatencyTable
    warm: frozenset[int]


def open_proved(bundle: Bundle, tuner: Tuner, tuning: Tuning) -> tuple[Tuning, Opened]:
    """The chosen engine, warm and proved; FP32 ONNX Runtime in its place where it fails and that is allowed.

    It is, where the settings leave the choice to the tuner: a choice that was kept may fail at a later start.
    """
    settings = tuner.settings
    try:
        return tuning, _open(bundle, tuner, tuning)
    except (EngineError, BundleError) as error:
        if pins(settings) or kind_of(tuning.chosen) == REFERENCE:
            raise
        _log.error("release %s on %r: %s", bundle.digest[:12], tuning.chosen, error)
        tuner.failed(bundle, tuning, first_problem(error))
        instead = tuner.reference(first_problem(error))
    return instead, _open(bundle, tuner, instead)


def _open(bundle: Bundle, tuner: Tuner, tuning: Tuning) -> Opened:
    chosen, settings = tuning.chosen, tuner.settings
    options = EngineOptions(
        provider=cast("Provider", chosen.provider),
        allow_fallback=settings.allow_fallback,
        threads=chosen.threads,
        streams=chosen.streams,
        precision=chosen.precision,
        engine_cache=tuner.store.engines,
        max_batch=settings.max_batch,
        workspace_bytes=settings.trt_workspace_bytes,
    )
    detector = open_detector(bundle, options)
    engine, warm = detector.engine, set[int]()

    def measure() -> LatencyTable:
        table = warm_up(detector, settings.max_batch)
        warm.update(size for size, _ in table.points)
        return table

    opened = EngineChoice(
        provider=engine.provider, precision=engine.precision, threads=engine.threads, streams=engine.streams
    )
    table = tuner.latency(bundle, opened, measure)
    check_golden(detector, bundle)
    return Opened(detector, table, frozenset(warm))


def return_memory() -> None:
    """Give the memory of a dropped release back to the system; without it the process grows with every swap."""
    gc.collect()
    trim_heaps()


def trim_heaps() -> None:
    """Give the pages between living objects back to the system."""
    with suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL("libc.so.6").malloc_trim(0)
