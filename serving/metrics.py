"""What the service counts and times, for Prometheus.

BentoML gives every worker process a shared folder and sums over the workers where `/metrics` is asked; counts of a
worker that died stay in the sum, gauges of the kind `live*` do not.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_PICTURES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)


class Metrics:
    """All metrics of one worker process. Make it once per registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.registry = registry
        self.requests = Counter(
            "passline_requests", "Answered requests.", ("route", "status", "verdict"), registry=registry
        )
        self.stage_seconds = Histogram(
            "passline_stage_seconds", "Time per stage of a request.", ("stage",), buckets=_SECONDS, registry=registry
        )
        self.batch_size = Histogram(
            "passline_engine_batch_size", "Pictures per engine call.", buckets=_PICTURES, registry=registry
        )
        self.queued = Gauge(
            "passline_queued", "Pictures that wait for the engine.", registry=registry, multiprocess_mode="livesum"
        )
        self.overloaded = Counter(
            "passline_overloaded", "Requests refused because they could not be answered in time.", registry=registry
        )
        self.release = Gauge(
            "passline_release_info",
            "Workers that answer with this release.",
            ("digest", "name", "version"),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.degraded = Gauge(
            "passline_degraded_workers",
            "Workers that answer, but not as wished.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.refused = Counter("passline_release_refused", "Releases that a worker refused to load.", registry=registry)
        self.unreadable = Counter(
            "passline_release_state_unreadable", "Times that the desired state became unreadable.", registry=registry
        )


def forget_dead_workers() -> None:
    """Remove the live gauges of worker processes that are gone; nobody else does it for a killed worker."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not folder:
        return
    for path in Path(folder).glob("gauge_live*.db"):
        found = re.search(r"_(\d+)\.db$", path.name)
        if found and not Path(f"/proc/{found[1]}").exists():
            path.unlink(missing_ok=True)
