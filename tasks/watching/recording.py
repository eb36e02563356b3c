"""MLflow: the load of the machine as system metrics of the run, and the sheets of sample pictures as its artifacts."""

from __future__ import annotations

import time

from tasks.registry import MetricLog, Registry
from tasks.watching.seen import Seen
from tasks.watching.utilisation import Gpus, Snapshot, load_between, take_snapshot

SAMPLES_FOLDER = "samples"
WAITING_MOST = 1000
"""Samples that wait for a server that is away; then they are given up and the next ones wait."""
SHORTEST_S = 0.5
"""Shares of a shorter time are noise: at the end of a training there is none of it."""


class Recording:
    """`record` runs in a thread of its own, at even intervals."""

    def __init__(self, seen: Seen, registry: Registry, run_id: str) -> None:
        self._seen, self._registry, self._run_id = seen, registry, run_id
        self._log, self._waiting, self._step = MetricLog(registry, run_id), 0, 0
        self._gpus: Gpus | None = None
        self._before: Snapshot | None = None

    def record(self) -> None:
        """One sample in one call, with those that waited, then the new sheets. Raises RegistryError."""
        self._sample()
        for sheet in self._seen.view().unsent:
            if sheet.picture.is_file():
                self._registry.log_file(self._run_id, sheet.picture, SAMPLES_FOLDER)
            self._seen.sent(sheet)

    def _sample(self) -> None:
        now_s, before = time.monotonic(), self._before
        if before is not None and now_s - before.at_s < SHORTEST_S:
            return self._log.close()
        self._gpus = self._gpus or Gpus()
        self._before = take_snapshot(self._seen.view().progress.pid, now_s, self._gpus)
        if before is not None:
            self._send(load_between(before, self._before))
        return None

    def _send(self, metrics: dict[str, float]) -> None:
        error = self._log.add(self._step, metrics)
        self._step += 1
        self._waiting = self._waiting + 1 if error else 0
        if self._waiting >= WAITING_MOST:
            self._log, self._waiting = MetricLog(self._registry, self._run_id), 0
        if error:
            raise error
