"""Step: what validation found, in the Prefect UI."""

from __future__ import annotations

from prefect import task

from tasks.artifacts import leave_markdown, markdown_table
from tasks.findings import ValidationReport

SHOWN = 50


def validation_markdown(report: ValidationReport) -> str:
    """Verdict, counts and the first findings; errors come first."""
    order = {"error": 0, "warning": 1, "notice": 2}
    findings = sorted(report.findings, key=lambda finding: order[finding.severity])
    rows = [(f.severity, f.rule, f.file, f.line or "", f.expected, f.got, f.action) for f in findings[:SHOWN]]
    more = f"\n\n{len(findings) - SHOWN} more in the data report." if len(findings) > SHOWN else ""
    table = markdown_table(["severity", "rule", "file", "line", "expected", "got", "what to do"], rows) + more
    heading = "Accepted" if report.accepted else "Rejected"
    return f"## {heading}\n\n{report.summary()}\n\n{table if rows else 'No findings.'}"


@task(name="show validation")
def leave_validation(report: ValidationReport) -> None:
    """Attach the findings to the run."""
    leave_markdown("data-validation", validation_markdown(report), "What the data contracts found")
