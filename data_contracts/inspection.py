"""Requests and answers of the inspection endpoint."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from data_contracts.base import Contract, Sha256, WidthHeight
from data_contracts.detections import Detection, Verdict
from data_contracts.release import CandidateMode


class ReleaseRef(Contract):
    """Which release answered."""

    digest: Sha256
    name: str
    version: str


class JsonPicture(BaseModel):
    """JSON body of an inspection request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str = Field(min_length=1, description="The picture in base64, with or without a data URL in front.")


class Inspection(Contract):
    """Answer to one picture."""

    request_id: str
    verdict: Verdict
    detections: tuple[Detection, ...] = Field(description="Boxes over their class's threshold, best score first.")
    image_wh: WidthHeight = Field(description="Width and height as displayed (EXIF orientation applied), pixels.")
    release: ReleaseRef
    batch_size: int = Field(ge=1, description="Pictures in the engine call that answered this one.")
    timings_ms: dict[str, float] = Field(description="Milliseconds per stage.")


class ReleaseStatus(Contract):
    """GET /v1/release."""

    worker_id: str
    ready: bool
    reason: str = Field(description="Why it is not ready; empty when it is.")
    generation: int
    active: ReleaseRef | None
    candidate: Sha256 | None
    candidate_mode: CandidateMode | None
    previous: Sha256 | None
    loaded: tuple[Sha256, ...]
    refused: dict[Sha256, str]
    provider: str | None
    precision: str | None
    threads: int
    max_batch: int
    degraded: tuple[str, ...] = Field(description="What is not as wished although it answers.")
    fingerprint: str


class ProblemDetails(BaseModel):
    """Error body, RFC 9457 (application/problem+json)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    request_id: str
