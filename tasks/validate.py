"""Step `validate`: is this dataset fit to train on? Every finding says file, line, rule, value and what to do."""

from __future__ import annotations

from pathlib import Path

from prefect import get_run_logger, task

from data_contracts.errors import DatasetError, PasslineError
from tasks.data_report import about_pin, write_report
from tasks.datasets.dataset_revisions import previous_revision
from tasks.datasets.pinned_copy import PinnedCopy
from tasks.pin import PinnedDataset
from tasks.scan import DatasetScan
from tasks.validation.checking import scan_folder, validate_folder
from tasks.validation.findings import ValidationReport
from tasks.validation.judging import judge_scan, rejected_by_layout
from tasks.validation.quarantine import write_quarantine
from tasks.validation.validate_config import ValidateConfig

__all__ = [
    "DATA_DOCS",
    "ValidateConfig",
    "check_dataset",
    "judge_scan",
    "rejected_by_layout",
    "require_accepted",
    "scan_folder",
    "validate_folder",
]

DATA_DOCS = "data_docs"
MOST_TOLD = 20
"""So many errors are told where a run ends; the data report has all."""


def require_accepted(report: ValidationReport) -> None:
    """Raise DatasetError with the errors of a report that was not accepted, the first MOST_TOLD of them."""
    if report.accepted:
        return
    errors = [str(finding) for finding in report.findings if finding.severity == "error"]
    more = [f"and {len(errors) - MOST_TOLD} more errors: see the data report"] if len(errors) > MOST_TOLD else []
    raise DatasetError(*errors[:MOST_TOLD], *more)


@task
def check_dataset(
    pinned: PinnedDataset, config: ValidateConfig, report_folder: Path, scans: Path, pinned_home: Path
) -> ValidationReport:
    """Validate a pinned dataset; the data report, quarantine.csv and data_docs/ are written to `report_folder`.

    Its scan is kept below `scans`. The revision before it is compared where its copy is still below `pinned_home`.
    """
    scan = scan_folder(pinned.folder, config, scans)
    report = judge_scan(scan, config, report_folder / DATA_DOCS)
    write_quarantine(report.quarantine_reasons, report_folder)
    previous = _previous_scan(pinned, config, scans, pinned_home)
    page = write_report(report, scan, report_folder, pinned.pin.name, previous, about=about_pin(pinned.pin))
    _log(report, page)
    return report


def _previous_scan(pinned: PinnedDataset, config: ValidateConfig, scans: Path, pinned_home: Path) -> DatasetScan | None:
    """The scan of the revision before, None where there is none or it is not on this machine."""
    try:
        before = previous_revision(pinned.pin)
        copy = PinnedCopy(pinned_home, before) if before else None
        return scan_folder(copy.folder, config, scans) if copy and copy.is_complete() else None
    except PasslineError as error:  # It is for the report only.
        get_run_logger().warning("The revision before could not be compared: %s", error)
        return None


def _log(report: ValidationReport, page: Path) -> None:
    logger = get_run_logger()
    logger.info("%s; report in %s", report.summary(), page)
    for finding in [finding for finding in report.findings if finding.severity == "error"][:MOST_TOLD]:
        logger.error("%s", finding)
    if report.quarantined:
        logger.warning("%d pictures are kept out of training, see quarantine.csv", len(report.quarantined))
