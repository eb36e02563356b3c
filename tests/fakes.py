"""Fakes, one per seam."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry

from data_contracts.bundle import Precision
from data_contracts.errors import NotReady
from data_contracts.inspection import ReleaseStatus
from serving.batching import Batcher
from serving.bundle import Bundle
from serving.detector import Detector
from serving.engines import Engine
from serving.metrics import Metrics
from serving.resident import Resident

Tensor = npt.NDArray[np.float32]


def fresh_metrics() -> Metrics:
    """Metrics in a registry of their own."""
    return Metrics(CollectorRegistry())


def counted(metrics: Metrics, sample: str, /, **labels: str) -> float:
    """The value of a sample; 0 when it never was."""
    return metrics.registry.get_sample_value(sample, labels) or 0.0


@dataclass
class FakeEngine:
    """An engine around another one, or one that echoes; it can be slow, held, short of answers or broken."""

    inner: Engine | None = None
    delay_s: float = 0.0
    short_by: int = 0
    error: Exception | None = None
    gate: threading.Event | None = None
    provider: str = "cpu"
    precision: Precision = "fp32"
    threads: int = 1
    streams: int = 1
    degraded: str = ""
    sizes: list[int] = field(default_factory=list)
    entered: threading.Event = field(default_factory=threading.Event)

    def run(self, batch: Tensor) -> Tensor:
        """The inner engine's answer, or the batch itself."""
        self.sizes.append(len(batch))
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(20), "the test never opened the gate"
        time.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        outputs = batch if self.inner is None else self.inner.run(batch)
        return outputs[: len(outputs) - self.short_by]


def fake_resident(bundle: Bundle, engine: Engine, *, max_batch: int = 8, max_queue: int = 64) -> Resident:
    """A loaded release that answers with `engine`. The engine is called without the detector's own check of counts."""
    batcher = Batcher(engine.run, max_batch=max_batch, max_queue=max_queue)
    return Resident(bundle, Detector(bundle.manifest.model, engine), batcher, 0.0)


@dataclass
class FakeReleases:
    """Stands for the release manager in HTTP tests."""

    resident: Resident | None = None
    reason: str = "nothing is active"

    def serving(self) -> Resident:
        """The resident, or NotReady."""
        if self.resident is None:
            raise NotReady(self.reason)
        return self.resident

    def status(self) -> ReleaseStatus:
        """As little as the contract allows."""
        return ReleaseStatus(
            worker_id="worker-1", ready=self.resident is not None, reason=self.reason, generation=0,
            active=self.resident.ref if self.resident else None, candidate=None, candidate_mode=None, previous=None,
            loaded=(), refused={}, provider=None, precision=None, threads=1, max_batch=8, degraded=(), fingerprint="f",
        )  # fmt: skip

    def stop(self) -> None:
        """Nothing runs."""
