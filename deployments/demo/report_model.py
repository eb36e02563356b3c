"""What a demonstration leaves in `var/demo/report.json`: the whole loop in numbers that a program can check."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from data_contracts.base import Contract, Fraction, Name, Seconds, Sha256, WidthHeight
from data_contracts.detections import Detection, Verdict

MaybeNumber = Annotated[float, Field(allow_inf_nan=False)] | None


class DatasetFacts(Contract):
    """The pinned dataset."""

    name: Name
    revision: str = Field(min_length=1, description="Git commit of the dataset repository.")
    hash: str = Field(min_length=1, description="DVC hash of the dataset folder.")


class ModelFacts(Contract):
    """The model version that came out on top of this run: the champion after it."""

    name: Name = Field(description="Registered name.")
    registry_version: str = Field(min_length=1, description="Version number in the registry.")
    bundle_digest: Sha256
    bundle_version: str = Field(min_length=1)


class ClassMetrics(Contract):
    """One class on the test split."""

    class_name: str
    instances: int = Field(ge=0, description="Labelled boxes of the class.")
    ap50: Fraction | None = Field(description="Average precision at IoU 0.50; none without instances.")
    ap50_95: Fraction | None = Field(
        description="Mean average precision over IoU 0.50 to 0.95; none without instances."
    )
    precision: Fraction | None = Field(description="At the class's threshold; none where nothing was found.")
    recall: Fraction | None = Field(description="At the class's threshold; none without instances.")


class TestMetrics(Contract):
    """The sealed bundle on the test split."""

    __test__ = False  # its name makes pytest take it for a test class

    map50: Fraction
    map50_95: Fraction
    images: int = Field(ge=0, description="Pictures in the test split.")
    per_class: tuple[ClassMetrics, ...]


class GateFacts(Contract):
    """One gate and how it went."""

    name: str = Field(min_length=1)
    holds: bool
    value: MaybeNumber = Field(description="What was measured; none where it could not be.")
    limit: MaybeNumber = Field(description="What it had to reach; none where there is no number.")
    words: str = Field(description="The same in a sentence.")


class Promotion(Contract):
    """Whether the candidate of this run became the champion, and why."""

    promoted: bool
    reason: str = Field(min_length=1)


class ServiceFacts(Contract):
    """What the service says it runs, asked after the promotion."""

    digest: Sha256
    version: str = Field(min_length=1)
    url: str = Field(min_length=1)


class PictureFacts(Contract):
    """One unseen picture, inspected over HTTP."""

    file: str = Field(min_length=1)
    verdict: Verdict
    expected_verdict: Verdict
    detections: tuple[Detection, ...]
    image_wh: WidthHeight
    annotated: str = Field(min_length=1, description="The picture with its boxes, relative to the report.")
    milliseconds: Seconds | None = Field(default=None, description="From request to answer, as the client saw it, ms.")


class Interpreters(Contract):
    """The Python of each side: three environments, not one."""

    training: str
    inference_worker: str
    service: str


class Urls(Contract):
    """Where to look further."""

    prefect: str
    mlflow: str
    service: str = Field(description="The API page of the service.")
    data_report: str | None = Field(default=None, description="The validation report of the dataset, if it was kept.")


class DemoReport(Contract):
    """Everything a demonstration run found out."""

    created_at: str = Field(min_length=1, description="ISO 8601 with a time zone.")
    dataset: DatasetFacts
    mlflow_run_id: str = Field(min_length=1)
    mlflow_url: str = Field(min_length=1, description="The page of the MLflow run.")
    model: ModelFacts
    metrics_test: TestMetrics
    gates: tuple[GateFacts, ...]
    promotion: Promotion
    service: ServiceFacts
    pictures: tuple[PictureFacts, ...]
    seconds: dict[str, Seconds] = Field(description="Wall time of each stage, in order.")
    interpreters: Interpreters
    urls: Urls

    @property
    def serves_the_champion(self) -> bool:
        """Whether the service runs the bundle that the registry calls champion."""
        return self.service.digest == self.model.bundle_digest

    @property
    def right_verdicts(self) -> int:
        """Pictures whose verdict is the expected one."""
        return sum(picture.verdict == picture.expected_verdict for picture in self.pictures)
