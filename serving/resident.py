"""A release in memory: loaded, warmed, proved on its golden pictures, with its own queue."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from data_contracts.inspection import ReleaseRef
from data_contracts.release import LoadedRelease
from serving.batching import Batcher
from serving.bundle import Bundle
from serving.detector import Detector, check_golden, open_detector
from serving.engines import EngineOptions
from serving.metrics import Metrics
from serving.settings import HostSettings
from serving.store import ReleaseStore

ALL_SIZES_UP_TO = 8


@dataclass(frozen=True, eq=False)
class Resident:
    """What answers requests. A request holds on to the one it was prepared for, also over a switch."""

    bundle: Bundle
    detector: Detector
    batcher: Batcher
    load_s: float

    @property
    def digest(self) -> str:
        """The bundle's digest."""
        return self.bundle.digest

    @property
    def ref(self) -> ReleaseRef:
        """How answers name it."""
        return ReleaseRef(digest=self.digest, name=self.bundle.manifest.name, version=self.bundle.manifest.version)

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
        )


Load = Callable[[str], Resident]
"""Gives the resident of a digest; raises PasslineError when it must not answer."""


def load_resident(store: ReleaseStore, settings: HostSettings, threads: int, metrics: Metrics, digest: str) -> Resident:
    """Open the bundle, build its engine, warm it up and check its golden pictures."""
    started = perf_counter()
    bundle = store.bundle(digest)
    options = EngineOptions(provider=settings.provider, allow_fallback=settings.allow_fallback, threads=threads)
    detector = open_detector(bundle, options)
    warm_up(detector, bundle, settings.max_batch)
    check_golden(detector, bundle)
    batcher = Batcher(
        detector.predict,
        max_batch=settings.max_batch,
        max_queue=settings.max_queue,
        on_batch=metrics.batch_size.observe,
        on_queue=metrics.queued.set,
    )
    return Resident(bundle, detector, batcher, perf_counter() - started)


def warm_up(detector: Detector, bundle: Bundle, max_batch: int) -> None:
    """One call per batch size, so that no request pays for an engine's first time."""
    width, height = bundle.manifest.model.input.wh
    for size in warm_sizes(max_batch):
        detector.predict(np.zeros((size, 3, height, width), np.float32))


def warm_sizes(max_batch: int) -> tuple[int, ...]:
    """Batch sizes to warm: all small ones, then powers of two and the largest.

    >>> warm_sizes(20)
    (1, 2, 3, 4, 5, 6, 7, 8, 16, 20)
    """
    sizes = set(range(1, min(max_batch, ALL_SIZES_UP_TO) + 1)) | {max_batch}
    power = ALL_SIZES_UP_TO
    while power < max_batch:
        sizes.add(power)
        power *= 2
    return tuple(sorted(sizes))


def return_memory() -> None:
    """Give the memory of a dropped release back to the system; without it the process grows with every swap."""
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL("libc.so.6").malloc_trim(0)
