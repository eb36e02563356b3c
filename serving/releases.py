"""What one service worker does about the desired release state.

A thread looks at the desired state, loads what is wanted beside what answers, proves it, switches one reference and
reports. The old release answers until the new one has proved itself; one that fails is refused and not tried again
until the desired state changes.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from time import monotonic

import psutil
from prometheus_client import Gauge

from data_contracts.errors import NotReady, PasslineError, Problem, ReleaseError
from data_contracts.inspection import ReleaseStatus
from data_contracts.release import DesiredState, WorkerReport, now
from serving.metrics import Metrics
from serving.resident import Load, Resident, return_memory, trim_heaps
from serving.settings import HostSettings
from serving.store import ReleaseStore

POLL_S = 0.2
REPORT_S = 1.0
TRIM_S = 60.0
"""Pictures of all sizes leave holes in the heap: under a mixed load a worker grew by 17 MB in three minutes, and by
nothing when they were given back every 15 s."""
_log = logging.getLogger("passline.releases")


class ReleaseManager:
    """Holds the releases of this worker. `converge` does one round; `start` does it in threads until `stop`."""

    def __init__(
        self,
        store: ReleaseStore,
        settings: HostSettings,
        metrics: Metrics,
        load: Load,
        *,
        worker_id: str,
        fingerprint: str,
        threads: int,
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._settings, self._metrics, self._load = store, settings, metrics, load
        self._worker_id, self._fingerprint, self._threads = worker_id, fingerprint, threads
        self._on_beat = on_beat
        self._started_at = now()
        self._state = DesiredState(generation=0, active=None)
        self._state_fault = ""
        self._generation = -1
        self._active: Resident | None = None
        self._held: dict[str, Resident] = {}
        self._refused: dict[str, str] = {}
        self._leaving: list[weakref.ref[Resident]] = []
        self._trimmed_at = monotonic()
        self._stopping = threading.Event()
        self._report_lock = threading.Lock()
        self._threads_running: list[threading.Thread] = []

    # What requests see

    def serving(self) -> Resident:
        """The release that answers now. Raises NotReady with what to do."""
        active = self._active
        if active is None:
            raise NotReady(self.reason)
        return active

    @property
    def reason(self) -> str:
        """Why nothing can be answered; empty when it can."""
        if self._active is not None:
            return ""
        if self._state_fault:
            return self._state_fault
        wanted = self._state.active
        if wanted is None:
            return "no release is active on this host: redeploy one (`redeploy` flow or an activate intent)"
        if wanted in self._refused:
            return f"release {wanted[:12]} was refused: {self._refused[wanted]}"
        return f"release {wanted[:12]} is being loaded and proved"

    @property
    def degraded(self) -> tuple[str, ...]:
        """What is not as wished although requests are answered."""
        found = [self._state_fault] if self._state_fault else []
        active, wanted = self._active, self._state.active
        if active is None:
            return tuple(found)
        if wanted is not None and active.digest != wanted and wanted in self._refused:
            found.append(f"release {wanted[:12]} was refused ({self._refused[wanted]}); {active.digest[:12]} answers")
        return (*found, *active.degraded)

    def status(self) -> ReleaseStatus:
        """GET /v1/release."""
        active, state = self._active, self._state
        engine = active.detector.engine if active else None
        return ReleaseStatus(
            worker_id=self._worker_id,
            ready=active is not None,
            reason=self.reason,
            generation=max(self._generation, 0),
            active=active.ref if active else None,
            candidate=state.candidate,
            candidate_mode=state.candidate_mode,
            previous=state.previous,
            loaded=tuple(self._held),
            refused=dict(self._refused),
            provider=engine.provider if engine else None,
            precision=engine.precision if engine else None,
            threads=engine.threads if engine else self._threads,
            streams=engine.streams if engine else 1,
            max_batch=active.max_batch if active else self._settings.max_batch,
            tuning=active.tuning if active else None,
            degraded=self.degraded,
            fingerprint=self._fingerprint,
        )

    def report(self) -> WorkerReport:
        """workers/<id>.json."""
        active = self._active
        return WorkerReport(
            worker_id=self._worker_id,
            pid=os.getpid(),
            started_at=self._started_at,
            generation=self._generation,
            active=active.digest if active else None,
            loaded=tuple(resident.record for resident in list(self._held.values())),
            refused=dict(self._refused),
            rss_bytes=psutil.Process().memory_info().rss,
            threads=self._threads,
            fingerprint=self._fingerprint,
        )

    # Converging

    def converge(self) -> None:
        """One round: read the desired state and do what it asks, if it changed."""
        self._trim()
        state = self._read_state()
        if state is None or (state == self._state and self._generation == state.generation):
            return
        self._state, self._refused = state, {}
        self._settle_active(state)
        if state.candidate is not None:
            self._obtain(state.candidate)
        self._drop_all_but({self._active_digest, state.active, state.candidate or state.previous})
        self._generation = state.generation
        self._show()
        self.write_report()

    def _settle_active(self, state: DesiredState) -> None:
        if state.active is None:
            self._active = None
            return
        wanted = self._obtain(state.active)
        if wanted is None and self._active is None and state.previous is not None:
            wanted = self._obtain(state.previous)
        if wanted is not None and wanted is not self._active:
            self._active = wanted
            _log.info("release %s (%s) answers", wanted.digest[:12], wanted.ref.version)

    def _obtain(self, digest: str) -> Resident | None:
        """The resident of `digest`, loaded if need be; None when it was refused."""
        if digest in self._held:
            return self._held[digest]
        # Two at a time: what neither answers nor shall answer makes room first.
        self._drop_all_but({self._active_digest, self._state.active})
        try:
            self._held[digest] = self._load_in_turn(digest)
        except PasslineError as error:
            self._refuse(digest, str(error))
        except Exception as error:  # noqa: BLE001  (a broken model may raise anything; it must not end this thread)
            _log.exception("loading release %s", digest[:12])
            self._refuse(digest, f"{type(error).__name__}: {error}")
        return self._held.get(digest)

    def _load_in_turn(self, digest: str) -> Resident:
        """Load. Where something answers already, one worker after another: the others need the cores."""
        if self._active is None:
            return self._load(digest)
        with self._store.lock("loading", wait=True):
            return self._load(digest)

    def _refuse(self, digest: str, why: str) -> None:
        _log.error("release %s refused: %s", digest[:12], why)
        self._refused[digest] = why
        self._metrics.refused.inc()

    def _drop_all_but(self, keep: set[str | None]) -> None:
        for digest in set(self._held) - keep:
            resident = self._held.pop(digest)
            self._gauge(resident).set(0.0)
            self._leaving.append(weakref.ref(resident))

    def _trim(self) -> None:
        """Return memory once the requests that still held a dropped release are answered, and every now and then."""
        alive = [reference for reference in self._leaving if reference() is not None]
        if len(alive) < len(self._leaving):
            return_memory()
            self._trimmed_at = monotonic()
        elif monotonic() - self._trimmed_at >= TRIM_S:
            trim_heaps()
            self._trimmed_at = monotonic()
        self._leaving = alive

    @property
    def _active_digest(self) -> str | None:
        return self._active.digest if self._active else None

    def _read_state(self) -> DesiredState | None:
        """The desired state; None, with the last good one kept, when it cannot be trusted."""
        try:
            state = self._store.desired()
            if state.generation == 0 and self._state.generation > 0:
                raise ReleaseError(
                    Problem("release.json", "the desired state", "no file", "Activate the release again to write it.")
                )
        except ReleaseError as error:
            if not self._state_fault:
                _log.error("%s; the last good state stays", error)
                self._metrics.unreadable.inc()
                self._state_fault = str(error)
                self._show()
            return None
        if self._state_fault:
            self._state_fault = ""
            self._show()
        return state

    def _show(self) -> None:
        active = self._active
        for resident in self._held.values():
            self._gauge(resident).set(float(resident is active))
        self._metrics.degraded.set(float(bool(self.degraded)))

    def _gauge(self, resident: Resident) -> Gauge:
        ref = resident.ref
        return self._metrics.release.labels(ref.digest, ref.name, ref.version)

    # Threads

    def write_report(self) -> None:
        """Tell the host agent where this worker stands."""
        with self._report_lock:
            self._store.write_worker(self.report())

    def start(self) -> None:
        """Converge and report in two threads: a long load must not make the worker look dead."""
        for work, pause_s in ((self.converge, POLL_S), (self._beat, REPORT_S)):
            thread = threading.Thread(target=self._repeat, args=(work, pause_s), daemon=True, name=work.__name__)
            thread.start()
            self._threads_running.append(thread)

    def stop(self) -> None:
        """Stop converging and leave the store's list of workers."""
        self._stopping.set()
        for thread in self._threads_running:
            thread.join(timeout=5.0)
        self._store.forget_worker(self._worker_id)

    def _beat(self) -> None:
        self._on_beat()
        self.write_report()

    def _repeat(self, work: Callable[[], None], pause_s: float) -> None:
        while not self._stopping.is_set():
            try:
                work()
            except Exception:  # noqa: BLE001  (a full disk or the like must not end the thread; it is tried again)
                _log.exception("%s failed", work.__name__)
            self._stopping.wait(pause_s)
