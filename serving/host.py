"""All that one service worker holds: settings, store, releases, threads and metrics."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import cv2

from data_contracts.errors import Overloaded, Problem
from serving.engines import threads_from_quota
from serving.fingerprint import serving_fingerprint
from serving.images import ImageLimits
from serving.metrics import Metrics, forget_dead_workers
from serving.releases import ReleaseManager
from serving.resident import load_resident
from serving.settings import HostSettings
from serving.store import ReleaseStore

T = TypeVar("T")
_log = logging.getLogger("passline.host")


class InspectionHost:
    """One service worker. Made empty; `start` fills it, `stop` ends its threads."""

    settings: HostSettings
    metrics: Metrics
    releases: ReleaseManager
    limits: ImageLimits

    def __init__(self) -> None:
        self._in_flight = 0
        self._parent = os.getppid()

    def start(self, settings: HostSettings, metrics: Metrics, worker_id: str) -> None:
        """Open the store and begin to converge to the desired release."""
        self.settings, self.metrics = settings, metrics
        self.limits = ImageLimits(settings.max_bytes, settings.max_pixels, settings.min_side_px)
        cv2.setNumThreads(1)  # pictures run beside each other; threads within one would only be in each other's way
        # Whatever the engine takes: pictures are decoded and letterboxed on all CPUs that this worker has.
        cpus = threads_from_quota(settings.service_workers)
        # Two at least: one large picture must not hold up all others.
        self._pool = ThreadPoolExecutor(max(2, cpus), thread_name_prefix="picture")
        store = ReleaseStore(settings.store)
        store.prepare()
        forget_dead_workers()
        self.releases = ReleaseManager(
            store,
            settings,
            metrics,
            partial(load_resident, store, settings, cpus, metrics),
            worker_id=worker_id,
            fingerprint=serving_fingerprint(settings),
            threads=cpus,
            on_beat=self._end_without_parent,
        )
        self.releases.start()

    def stop(self) -> None:
        """Stop converging; pictures in work are finished."""
        self.releases.stop()
        self._pool.shutdown(wait=True)

    async def in_pool(self, work: Callable[[], T]) -> T:
        """Run work on pixels beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """A place for one request. Raises Overloaded at once where as many are here as can ever be answered in time."""
        most = self.settings.max_queue + 2 * self.settings.max_batch
        if self._in_flight >= most:
            raise Overloaded(Problem("service", f"at most {most} requests at once", "more", "Try again later."))
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def _end_without_parent(self) -> None:
        """A worker that outlives its arbiter would hold the port, and the next start would fail."""
        if os.getppid() != self._parent:
            _log.error("the process that started this worker is gone: this worker ends too")
            os.kill(os.getpid(), signal.SIGTERM)
