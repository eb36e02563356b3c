"""The verdict on a scan: its tables are held against the suites, and what breaks a rule becomes a finding."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from data_contracts.errors import DatasetError, Problem
from tasks.scan import DatasetScan
from tasks.validation.dataset_facts import dataset_table
from tasks.validation.expectations import RuleOutcome, SuiteRunner
from tasks.validation.findings import Finding, RuleResult, ValidationReport
from tasks.validation.quarantine import quarantined_pictures
from tasks.validation.scan_facts import count_boxes, count_pictures, label_table, picture_table
from tasks.validation.validate_config import ValidateConfig

MOST_FINDINGS = 1000
"""So many places of one rule are listed; one more finding says how many there are."""
_FILE_COLUMN = {"pictures": "path", "labels": "file", "dataset": "file"}


def judge_scan(scan: DatasetScan, config: ValidateConfig, docs: Path | None = None) -> ValidationReport:
    """Hold the tables of a scan against the rules; the results of Great Expectations are written to `docs`.

    The dataset as a whole is judged without the pictures that go to quarantine.
    """
    parameters = config.model_dump(mode="json")
    runner = SuiteRunner(parameters)
    tables = {
        "pictures": picture_table(scan),
        "labels": label_table(scan.labels, scan.layout.class_names),
    }
    outcomes = [outcome for name, table in tables.items() for outcome in runner.check(name, table)]
    sent = [one for one in outcomes if config.severity(one) == "error" and config.policy(one) == "quarantine"]
    reasons = quarantined_pictures(sent, tables)
    tables["dataset"] = dataset_table(scan, reasons)
    outcomes += runner.check("dataset", tables["dataset"])
    if docs is not None:
        runner.write_docs(docs, tables)
    # A picture that two splits name is scanned twice, but has one fault.
    findings = dict.fromkeys(
        finding for one in outcomes if one.broken for finding in findings_of(one, tables[one.table], config, parameters)
    )
    return ValidationReport(
        accepted=not any(rejects(one, config) for one in outcomes),
        findings=tuple(findings),
        counts=count_pictures(scan),
        class_boxes=count_boxes(scan),
        quarantined=tuple(reasons),
        quarantine_reasons=reasons,
        rules=tuple(_result(one, config) for one in outcomes),
    )


def rejects(outcome: RuleOutcome, config: ValidateConfig) -> bool:
    """Whether what a rule found is enough to refuse the dataset."""
    return bool(outcome.broken) and config.severity(outcome) == "error" and config.policy(outcome) == "reject"


def _result(outcome: RuleOutcome, config: ValidateConfig) -> RuleResult:
    return RuleResult(
        table=outcome.table, rule=outcome.rule, severity=config.severity(outcome), policy=config.policy(outcome),
        checked=outcome.checked, broken=outcome.broken,
    )  # fmt: skip


def findings_of(
    outcome: RuleOutcome, table: pd.DataFrame, config: ValidateConfig, parameters: dict[str, object]
) -> Iterator[Finding]:
    """The findings of a rule, the first MOST_FINDINGS one by one."""
    severity = config.severity(outcome)
    for record, words in outcome.words(table, parameters, MOST_FINDINGS):
        file = str(record[_FILE_COLUMN[outcome.table]]) if record else "data.yaml"
        line = int(record["line"]) if outcome.table == "labels" and record else None
        yield Finding(file=file, line=line or None, rule=outcome.rule, severity=severity, **words)
    if outcome.broken > MOST_FINDINGS:
        yield Finding(
            file="the dataset", line=None, rule=outcome.rule, severity=severity,
            got=f"{outcome.broken - MOST_FINDINGS} more places, {outcome.broken} in all", expected=f"no {outcome.rule}",
            action="Mend their common cause; validate again for those that remain.",
        )  # fmt: skip


def rejected_by_layout(error: DatasetError, folder: Path) -> ValidationReport:
    """The report on a folder whose YAML file or lists are at fault, so that nothing could be scanned."""
    root = os.path.abspath(folder)  # noqa: PTH100 - as `read_layout` names it
    findings = tuple(_layout_finding(problem, root) for problem in error.problems)
    return ValidationReport(accepted=False, findings=findings, counts={}, class_boxes={})


def _layout_finding(problem: Problem | str, root: str) -> Finding:
    if isinstance(problem, str):
        problem = Problem(root, "a dataset", problem, "Mend it.")
    file, _, line = problem.subject.removeprefix(f"{root}/").partition(", line ")
    return Finding(
        file=file, line=int(line) if line.isdigit() else None, rule="layout", severity="error",
        expected=problem.expected, got=problem.got, action=problem.action,
    )  # fmt: skip
