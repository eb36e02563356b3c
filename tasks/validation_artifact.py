"""Step: what validation found, in the Prefect UI."""

from __future__ import annotations

from pathlib import Path

from prefect import task

from tasks.artifacts import leave_markdown, markdown_table
from tasks.data_report import REPORT_PAGE
from tasks.validate import DATA_DOCS
from tasks.validation.findings import RuleResult, ValidationReport
from tasks.validation.quarantine import QUARANTINE_FILE

SHOWN = 50
_ORDER = {"error": 0, "warning": 1, "notice": 2}


def validation_markdown(report: ValidationReport, folder: Path | None = None) -> str:
    """Verdict, counts, the first findings, worst first, and pictures in quarantine; `folder` holds the data report."""
    findings = sorted(report.findings, key=lambda finding: _ORDER[finding.severity])
    rows = [(f.severity, f.rule, f.file, f.line or "", f.expected, f.got, f.action) for f in findings[:SHOWN]]
    more = f"\n\n{len(findings) - SHOWN} more in the data report." if len(findings) > SHOWN else ""
    table = markdown_table(["severity", "rule", "file", "line", "expected", "got", "what to do"], rows) + more
    heading = "Accepted" if report.accepted else "Rejected"
    parts = [f"## {heading}", report.summary(), table if rows else "No findings.", *_quarantine(report)]
    if folder is not None:
        files = [
            (REPORT_PAGE, "data report"),
            (f"{DATA_DOCS}/index.html", "Data Docs"),
            (QUARANTINE_FILE, "quarantine"),
        ]
        parts.append(markdown_table(["what", "where"], [(what, folder / name) for name, what in files]))
    return "\n\n".join(parts)


def _quarantine(report: ValidationReport) -> list[str]:
    if not report.quarantined:
        return []
    rows = [(path, ", ".join(rules)) for path, rules in list(report.quarantine_reasons.items())[:SHOWN]]
    more = (
        f"\n\n{len(report.quarantined) - SHOWN} more in {QUARANTINE_FILE}." if len(report.quarantined) > SHOWN else ""
    )
    return ["### Kept out of training", markdown_table(["picture", "rules"], rows) + more]


def rules_markdown(report: ValidationReport) -> str:
    """Every rule with what Great Expectations found; broken ones first, worst first."""
    ordered = sorted(report.rules, key=lambda rule: (not rule.broken, _ORDER[rule.severity], rule.table))
    return markdown_table(["suite", "rule", "severity", "policy", "rows", "broken"], map(_rule_row, ordered))


def _rule_row(result: RuleResult) -> tuple[object, ...]:
    policy = result.policy if result.severity == "error" else ""
    return result.table, result.rule, result.severity, policy, result.checked, result.broken or "holds"


@task(name="show validation")
def leave_validation(report: ValidationReport, folder: Path) -> None:
    """Attach the findings, the result of every rule and where the pages lie to the run."""
    leave_markdown("data-validation", validation_markdown(report, folder), "What the data contracts found")
    leave_markdown("data-rules", rules_markdown(report), "Great Expectations: every rule and its result")
