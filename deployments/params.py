"""params.yaml: the one home of every tunable number, read against the models of the steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from data_contracts.base import Contract
from data_contracts.errors import JobError
from deployments.automations import AlertConfig
from deployments.field_problems import field_problem
from deployments.yaml_files import read_yaml
from tasks.alerts import AttendConfig
from tasks.ensure_service import EnsureServiceConfig
from tasks.job import TrainingJob
from tasks.promote import PromoteConfig
from tasks.reconcile import ReconcileConfig
from tasks.redeploy import RedeployConfig

Model = TypeVar("Model", bound=Contract)


class Schedule(Contract):
    """When things run by themselves."""

    retrain_cron: str = Field(min_length=9, description="Nightly retraining, as a cron line.")
    timezone: str = Field(min_length=1, description="Time zone of the cron line, e.g. Europe/Berlin.")
    reconcile_cron: str = Field(min_length=9, description="Looks at the hosts, as a cron line.")


class Params(Contract):
    """params.yaml as a whole."""

    job: TrainingJob
    promote: PromoteConfig
    redeploy: RedeployConfig
    ensure_service: EnsureServiceConfig
    reconcile: ReconcileConfig
    attend: AttendConfig
    alerts: AlertConfig
    schedule: Schedule


def load_params(path: Path) -> Params:
    """Read params.yaml. Raises JobError naming every wrong, missing or unknown field."""
    return validated(Params, read_yaml(path), path.name)


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, mappings merged in depth.

    >>> merge({"train": {"epochs": 3, "batch": 8}}, {"train": {"epochs": 5}})
    {'train': {'epochs': 5, 'batch': 8}}
    """
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def load_job(path: Path, params: Params) -> TrainingJob:
    """A job file: any fields of a training job; the rest comes from params.yaml. Raises JobError naming fields."""
    given = read_yaml(path)
    return validated(TrainingJob, merge(params.job.model_dump(mode="json"), given), path.name)


def validated(model: type[Model], content: dict[str, Any], subject: str) -> Model:
    """`content` as a checked `model`. Raises JobError naming every field that is wrong."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise JobError(*(field_problem(model, subject, item) for item in error.errors())) from None
