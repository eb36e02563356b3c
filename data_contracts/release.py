"""The release state of an inference host: what is wished, what is wanted, what is.

intents/<id>.json          a wish, from `redeploy`, the CLI on the host or the release channel
intents/<id>.outcome.json  what became of it, by the host agent
release.json               desired state: written by the host agent alone, replaced atomically
workers/<id>.json          observed state: written by each service worker
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from data_contracts.base import Contract, Fraction, Name, Seconds, Sha256


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


class CandidateMode(StrEnum):
    """How far a candidate has come. Shadow and canary follow."""

    WARM = "warm"


class DesiredState(Contract):
    """release.json: what every worker of this host converges to."""

    generation: int = Field(ge=0, description="Grows by one with every change.")
    active: Sha256 | None = Field(description="Digest that answers requests.")
    candidate: Sha256 | None = Field(default=None, description="Digest to load and prove beside the active one.")
    candidate_mode: CandidateMode | None = None
    candidate_share: Fraction = Field(default=0.0, description="Share of requests for the candidate.")
    previous: Sha256 | None = Field(default=None, description="Digest to return to.")
    reason: str = ""
    changed_at: datetime = Field(default_factory=now)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if (self.candidate is None) != (self.candidate_mode is None):
            raise ValueError("candidate and candidate_mode: expected both or neither")
        if self.candidate is not None and self.candidate == self.active:
            raise ValueError("candidate: is the active digest already")
        return self


class LoadedRelease(Contract):
    """One release that a worker holds in memory."""

    digest: Sha256
    name: str
    version: str
    warm: bool = Field(description="Warmed up and its golden pictures reproduced.")
    load_s: Seconds
    provider: str
    precision: str
    threads: int = Field(default=1, ge=1, description="Per engine call.")
    streams: int = Field(default=1, ge=1, description="Engine calls at once.")


class WorkerReport(Contract):
    """workers/<id>.json: what one service worker did about the desired state."""

    worker_id: Name
    pid: int = Field(ge=1)
    started_at: datetime
    reported_at: datetime = Field(default_factory=now)
    generation: int = Field(ge=-1, description="Last generation that this worker acted on; -1 before the first.")
    active: Sha256 | None
    loaded: tuple[LoadedRelease, ...] = ()
    refused: dict[Sha256, str] = Field(default_factory=dict, description="Digests that failed here, with the reason.")
    rss_bytes: int = Field(default=0, ge=0)
    threads: int = Field(default=1, ge=1, description="CPUs of this worker: the quota shared by all workers.")
    fingerprint: str = Field(description="Of the serving code and configuration that this process runs.")


class Intent(Contract):
    """A wish about the release state of one host."""

    intent_id: Name
    kind: Literal["activate", "rollback"]
    digest: Sha256 | None = Field(default=None, description="For activate: what shall be active.")
    reason: str
    requested_by: str
    requested_at: datetime = Field(default_factory=now)
    deadline_s: Seconds = Field(default=120.0, description="After this the host keeps what it had.")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if (self.kind == "activate") != (self.digest is not None):
            raise ValueError("digest: expected with activate, and only there")
        return self


class IntentOutcome(Contract):
    """What became of an intent."""

    intent_id: Name
    status: Literal["converged", "refused", "failed"]
    message: str
    active: Sha256 | None
    previous: Sha256 | None
    generation: int
    seconds: Seconds
    finished_at: datetime = Field(default_factory=now)


class HostReport(Contract):
    """What an inference host says about itself; promotion follows it."""

    host: Name
    at: datetime = Field(default_factory=now)
    desired: DesiredState
    workers: tuple[WorkerReport, ...]
    outcome: IntentOutcome | None = None

    @property
    def serving_digest(self) -> str | None:
        """The digest that every live worker answers with, or None where they differ or none is there."""
        active = {worker.active for worker in self.workers}
        return active.pop() if len(active) == 1 else None
