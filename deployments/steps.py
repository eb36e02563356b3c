"""Steps of prefect.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deployments.params import load_params


def read_params(file: str) -> dict[str, Any]:
    """Outputs for prefect.yaml's templates: every block of params.yaml, checked against the models of the flows.

    Raises JobError naming each wrong field, which makes `prefect deploy` stop before it changes anything.
    """
    params = load_params(Path(file))
    content = params.model_dump(mode="json")
    job = content["job"]
    return {
        **content,
        "dataset": job["dataset"],
        "validation": job["validation"],
        "retrain_cron": params.schedule.retrain_cron,
        "timezone": params.schedule.timezone,
        "reconcile_cron": params.schedule.reconcile_cron,
    }
