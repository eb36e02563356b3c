"""A training job: what one run of `retrain` is asked to do. The same model is the Prefect form and the job file."""

from __future__ import annotations

import os

from pydantic import Field, ValidationInfo, field_validator

from data_contracts.base import Contract, Name
from data_contracts.dataset import DatasetRef
from tasks.evaluation.evaluation_result import EvaluateConfig
from tasks.export import ExportConfig
from tasks.gating.gate_policy import GatePolicy
from tasks.parity import ParityConfig
from tasks.preflight import Ahead, PreflightConfig
from tasks.quantising.quantise_config import QuantiseConfig
from tasks.resources import ResourceConfig, fitting_threads, resource_words
from tasks.seal import SealConfig
from tasks.settings import SiteSettings
from tasks.smoke import SmokeConfig
from tasks.splits import SplitConfig
from tasks.thresholds import ThresholdConfig
from tasks.train import TrainConfig
from tasks.training.recovery import RecoveryConfig
from tasks.validate import ValidateConfig
from tasks.watching.watch_config import WatchConfig


class DatasetSource(Contract):
    """Which data. A repository without a slash is a dataset of `passline dataset add`."""

    name: Name = Field(description="Name of the dataset.")
    ref: DatasetRef


class TrainingJob(Contract):
    """Everything that decides what a retraining does, grouped by step."""

    dataset: DatasetSource
    preflight: PreflightConfig
    validation: ValidateConfig
    splits: SplitConfig
    smoke: SmokeConfig
    train: TrainConfig
    recovery: RecoveryConfig
    watch: WatchConfig
    resources: ResourceConfig
    priority: int = Field(ge=0, le=100, description="Jobs of a higher priority start first; the older of two equals.")
    image: str | None = Field(
        min_length=1, max_length=512, description="Container image; only for a pool whose worker starts containers."
    )
    code_revision: str | None = Field(
        pattern=r"^[0-9a-f]{7,40}$", description="Git commit that the code must be at; null: whatever is installed."
    )
    export: ExportConfig
    thresholds: ThresholdConfig
    quantise: QuantiseConfig
    seal: SealConfig
    evaluate: EvaluateConfig
    parity: ParityConfig
    gates: GatePolicy
    promote: bool = Field(description="Whether an accepted candidate that the policy favours is promoted at once.")

    @field_validator("resources")
    @classmethod
    def _agree_with_training(cls, resources: ResourceConfig, info: ValidationInfo) -> ResourceConfig:
        train = info.data.get("train")
        words = resource_words(resources, train.device, train.threads) if isinstance(train, TrainConfig) else None
        if words:
            raise ValueError(words)
        return resources

    def within_resources(self) -> TrainingJob:
        """The same job, its training kept to the cores that it declares."""
        train = self.train
        threads = fitting_threads(train.threads, self.resources.cpus, os.cpu_count() or 1)
        return self.model_copy(update={"train": train.model_copy(update={"threads": threads})})

    def ahead(self, settings: SiteSettings) -> Ahead:
        """What a run of this job is going to need at a site."""
        return Ahead(
            experiment=self.seal.name,
            dataset=settings.locate(self.dataset.ref),
            dataset_name=self.dataset.name,
            train=self.train,
            resources=self.resources,
            code_revision=self.code_revision,
            home=settings.home,
            pinned=settings.pinned,
        )
