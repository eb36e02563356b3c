"""Step `validate`: is this dataset fit to train on? Every finding says file, line, rule, value and what to do."""

from __future__ import annotations

from pathlib import Path

from prefect import get_run_logger, task
from pydantic import Field, field_validator

from data_contracts.base import Contract, Fraction
from data_contracts.errors import DatasetError
from serving.images import ImageLimits
from tasks.data_report import write_report
from tasks.expectations import Breach, Severity, rule_severities, run_suites
from tasks.findings import Finding, ValidationReport
from tasks.scan import DatasetScan, GroupPattern, scan_dataset
from tasks.scan_facts import count_boxes, count_pictures, dataset_table, label_table, picture_table


class ValidateConfig(Contract):
    """When a dataset is fit to train on."""

    max_bytes: int = Field(ge=1, le=2**30, description="Largest picture file, bytes.")
    max_pixels: int = Field(ge=1, le=2**30, description="Largest picture, width times height.")
    min_side_px: int = Field(ge=10, le=4096, description="Smallest side of a picture, pixels; the trainer needs 10.")
    min_box_px: float = Field(ge=0, le=100, description="Smallest side of a defect box, pixels.")
    min_pictures: int = Field(ge=1, description="Smallest number of pictures in a split.")
    min_class_instances: int = Field(ge=1, description="Smallest number of boxes of a class in train and in val.")
    max_unlabelled_share: Fraction = Field(description="Largest share of a split's pictures without a label file.")
    group_pattern: GroupPattern = Field(
        description="Regular expression on a picture's name; its first group is the part, lot or burst."
    )
    severities: dict[str, Severity] = Field(description="Rules whose severity differs from the suite's.")

    @field_validator("severities")
    @classmethod
    def _rules_exist(cls, severities: dict[str, Severity]) -> dict[str, Severity]:
        if unknown := sorted(set(severities) - set(rule_severities())):
            raise ValueError(f"unknown rules {', '.join(unknown)}; known: {', '.join(sorted(rule_severities()))}")
        return severities


def validate_folder(folder: Path, config: ValidateConfig) -> ValidationReport:
    """Scan `folder` and hold it against the rules. Raises DatasetError when data.yaml does not describe the folder."""
    limits = ImageLimits(config.max_bytes, config.max_pixels)
    return judge_scan(scan_dataset(folder, limits, config.group_pattern), config)


def judge_scan(scan: DatasetScan, config: ValidateConfig) -> ValidationReport:
    """Hold the tables of a scan against the rules."""
    tables = {
        "pictures": picture_table(scan.pictures),
        "labels": label_table(scan.labels),
        "dataset": dataset_table(scan),
    }
    file_column = {"pictures": "path", "labels": "file", "dataset": "file"}
    found: dict[Finding, None] = {}  # A picture that two splits name is scanned twice, but has one fault.
    for name, breaches in run_suites(tables, config.model_dump()).items():
        for breach in breaches:
            row = tables[name].iloc[breach.row]
            line = int(row["line"]) if name == "labels" else None
            found[_finding(breach, str(row[file_column[name]]), line, config)] = None
    findings = tuple(found)
    return ValidationReport(
        accepted=not any(finding.severity == "error" for finding in findings),
        findings=findings,
        counts=count_pictures(scan),
        class_boxes=count_boxes(scan),
    )


def _finding(breach: Breach, file: str, line: int | None, config: ValidateConfig) -> Finding:
    return Finding(
        file=file,
        line=line,
        rule=breach.rule,
        severity=config.severities.get(breach.rule, breach.severity),
        got=breach.got,
        expected=breach.expected,
        action=breach.action,
    )


def require_accepted(report: ValidationReport) -> None:
    """Raise DatasetError with every error of a report that was not accepted."""
    if not report.accepted:
        raise DatasetError(*(str(finding) for finding in report.findings if finding.severity == "error"))


@task
def check_dataset(folder: Path, config: ValidateConfig, report_folder: Path, title: str) -> ValidationReport:
    """Validate a dataset; data_report.html and validation.json are written to `report_folder`."""
    report = validate_folder(folder, config)
    page = write_report(report, report_folder, title)
    logger = get_run_logger()
    logger.info("%s; report in %s", report.summary(), page)
    for finding in report.findings:
        if finding.severity == "error":
            logger.error("%s", finding)
    return report
