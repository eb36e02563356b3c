from __future__ import annotations

from pathlib import Path

from tasks.validation.findings import RuleResult, ValidationReport
from tasks.validation_artifact import SHOWN, rules_markdown, validation_markdown


def _rule(rule: str, severity: str, broken: int) -> RuleResult:
    return RuleResult.model_validate(
        {"table": "labels", "rule": rule, "severity": severity, "policy": "quarantine", "checked": 9, "broken": broken}
    )


def test_every_rule_is_told_broken_ones_first_and_worst_first():
    rules = (_rule("a", "error", 0), _rule("b", "notice", 3), _rule("c", "error", 2))
    report = ValidationReport(accepted=False, findings=(), counts={}, class_boxes={}, rules=rules)
    lines = rules_markdown(report).splitlines()[2:]
    assert [line.split(" | ")[1] for line in lines] == ["c", "b", "a"]
    assert lines[0] == "| labels | c | error | quarantine | 9 | 2 |"
    assert lines[1] == "| labels | b | notice |  | 9 | 3 |"
    assert lines[2].endswith("| 9 | holds |")


def test_pictures_in_quarantine_and_the_places_of_the_pages_are_told():
    reasons = {f"images/{n:03d}.png": ("box_size", "class_id") for n in range(SHOWN + 3)}
    report = ValidationReport(
        accepted=True, findings=(), counts={}, class_boxes={}, quarantined=tuple(reasons), quarantine_reasons=reasons
    )
    text = validation_markdown(report, Path("/runs/7/data"))
    assert "### Kept out of training" in text
    assert "| images/000.png | box_size, class_id |" in text
    assert "3 more in quarantine.csv." in text
    assert "| Data Docs | /runs/7/data/data_docs/index.html |" in text
    assert "/runs/7/data/data_report.html" in text
