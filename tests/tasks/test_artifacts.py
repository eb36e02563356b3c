"""What runs leave in the Prefect UI."""

from tasks.artifacts import markdown_pictures, markdown_table
from tasks.validation.findings import Finding, ValidationReport
from tasks.validation_artifact import SHOWN, validation_markdown


def test_cells_cannot_break_the_table() -> None:
    table = markdown_table(["a", "b"], [["x|y", "two\nlines"], [0.12345, 3]])
    assert table.splitlines() == ["| a | b |", "|---|---|", r"| x\|y | two lines |", "| 0.123 | 3 |"]


def test_pictures_travel_inside_the_text() -> None:
    assert markdown_pictures([("plate", b"\xff\xd8")]) == "**plate**\n\n![plate](data:image/jpeg;base64,/9g=)"


def finding(severity: str) -> Finding:
    return Finding.model_validate(
        {
            "file": "a.txt",
            "line": 1,
            "rule": "class_id",
            "severity": severity,
            "got": "9",
            "expected": "0-5",
            "action": "x",
        }
    )


def test_errors_come_first_and_the_rest_is_counted() -> None:
    findings = (*[finding("warning")] * SHOWN, finding("error"))
    report = ValidationReport(accepted=False, findings=findings, counts={}, class_boxes={})
    text = validation_markdown(report)
    assert text.startswith("## Rejected")
    assert "| error |" in text.splitlines()[6]
    assert "1 more in the data report" in text
