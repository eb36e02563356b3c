"""A training job: what one run of `retrain` is asked to do. The same model is the Prefect form and the job file."""

from __future__ import annotations

from pydantic import Field

from data_contracts.base import Contract, Name
from data_contracts.dataset import DatasetRef
from tasks.evaluation.evaluation_result import EvaluateConfig
from tasks.export import ExportConfig
from tasks.gating.gate_policy import GatePolicy
from tasks.parity import ParityConfig
from tasks.preflight import PreflightConfig
from tasks.seal import SealConfig
from tasks.splits import SplitConfig
from tasks.thresholds import ThresholdConfig
from tasks.train import SmokeConfig, TrainConfig
from tasks.validate import ValidateConfig


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
    export: ExportConfig
    thresholds: ThresholdConfig
    seal: SealConfig
    evaluate: EvaluateConfig
    parity: ParityConfig
    gates: GatePolicy
    promote: bool = Field(description="Whether an accepted candidate that the policy favours is promoted at once.")
