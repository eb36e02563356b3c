"""What an inference host found out about the engines that could run a bundle: kept per host, shown in /v1/release."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from data_contracts.base import Contract
from data_contracts.bundle import Precision

Policy = Literal["throughput", "latency"]


class EngineChoice(Contract):
    """An engine and how it shares this worker's CPUs: `streams` calls at once, `threads` for each of them."""

    provider: str
    precision: Precision
    threads: int = Field(ge=1)
    streams: int = Field(ge=1)


class TunedCandidate(Contract):
    """One engine and layout that was looked at. Rates are of batches of one, all streams busy."""

    engine: EngineChoice
    pictures_per_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    call_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False, description="Median of one engine call.")
    judgement: str = Field(default="", description="What the probe set said; empty for FP32 ONNX Runtime.")
    refused: str = Field(default="", description="Why it must not serve here; empty when it may.")


class Tuning(Contract):
    """How the engine of a release was chosen on this host."""

    chosen: EngineChoice
    policy: Policy
    how: str = Field(description="By which rule or measurement it was chosen, in words.")
    cached: bool = Field(default=False, description="Its speeds are of an earlier measurement on this host.")
    deferred: str = Field(default="", description="What was put off to the next start, for live traffic goes first.")
    degraded: str = Field(default="", description="What is not as wished; empty when all is.")
    candidates: tuple[TunedCandidate, ...] = ()


class SpeedTable(Contract):
    """How fast each engine runs models of one structure on this host: engines/speeds-<key>.json."""

    measured_at: datetime
    usable: tuple[TunedCandidate, ...] = Field(description="One row per engine and layout; refused: it failed.")
    absent: tuple[TunedCandidate, ...] = Field(description="Engines that cannot be had here, with the reason.")


class EngineVerdict(Contract):
    """Whether an engine answers as it must with one bundle: engines/judged-<digest>-<key>.json.

    passed and refused are for good. failed (it crashed, hung or would not load) is tried again after a while, deferred
    (live traffic left no time to judge it) as soon as nothing is being served.
    """

    outcome: Literal["passed", "refused", "failed", "deferred"]
    words: str
    judged_at: datetime


class LatencyPoints(Contract):
    """How long calls of an engine take by batch size, for models of one structure: engines/latency-<key>.json."""

    measured_at: datetime
    points: tuple[tuple[int, float], ...] = Field(description="Batch size and seconds, growing in both.")
