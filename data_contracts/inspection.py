"""Requests and answers of the inspection endpoint."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from data_contracts.base import Contract, Sha256, WidthHeight
from data_contracts.detections import Detection, Verdict
from data_contracts.release import CandidateMode
from data_contracts.tuning import Tuning


class ReleaseRef(Contract):
    """Which release answered."""

    digest: Sha256
    name: str
    version: str


class JsonFrame(BaseModel):
    """A raw frame in JSON: uint8 samples, row by row, channels of a pixel together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[int, ...] = Field(
        min_length=2, max_length=3, description="Height, width and channels; without channels for grey."
    )
    order: Literal["rgb", "bgr", "gray"] = Field(description="What the channels are.")
    data: str = Field(description="The samples in base64.")


BASE64 = "A picture file in base64, with or without a data URL in front, or a raw frame."


class JsonPicture(BaseModel):
    """JSON body with one picture."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str | JsonFrame = Field(description=BASE64)


class JsonPictures(BaseModel):
    """JSON body with several pictures; it is answered by a list."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: tuple[str | JsonFrame, ...] = Field(min_length=1, description=BASE64)


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
    threads: int = Field(description="Per engine call; the CPUs of this worker while nothing is active.")
    streams: int = Field(default=1, description="Engine calls at once.")
    max_batch: int = Field(description="Most pictures in one engine call, as measured to pay on this host.")
    tuning: Tuning | None = Field(default=None, description="How the engine was chosen on this host.")
    degraded: tuple[str, ...] = Field(description="What is not as wished although it answers.")
    fingerprint: str


class ProblemDetails(BaseModel):
    """Error body, RFC 9457 (application/problem+json)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    request_id: str


class PictureProblem(ProblemDetails):
    """Why one picture of several has no inspection: the answer that it would have got alone."""

    index: int = Field(ge=0, description="Position of the picture in the request.")


class InspectionList(Contract):
    """Answer to several pictures, in their order; a problem stands in the place of a picture without an inspection."""

    inspections: tuple[Inspection | PictureProblem, ...]
