"""Outcome: a dataset revision is fit to train on, or it is said why not. Runs on pool `training`, queue `train`."""

from __future__ import annotations

from prefect import flow

from tasks.job import DatasetSource
from tasks.pin import pin_dataset
from tasks.run_folder import run_folder
from tasks.settings import load_site_settings
from tasks.validate import ValidateConfig, check_dataset, require_accepted
from tasks.validation.findings import ValidationReport
from tasks.validation_artifact import leave_validation


@flow(name="validate_dataset", description=__doc__)
def validate_dataset(dataset: DatasetSource, config: ValidateConfig) -> ValidationReport:
    """Pin -> scan and check -> report; the run fails when the data is rejected."""
    settings = load_site_settings()
    pinned = pin_dataset(settings.locate(dataset.ref), dataset.name, settings.pinned)
    folder = run_folder(settings.runs) / "data"
    report = check_dataset(pinned, config, folder, settings.home / "scans", settings.pinned)
    leave_validation(report, folder)
    require_accepted(report)
    return report
