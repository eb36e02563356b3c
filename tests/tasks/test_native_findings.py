from __future__ import annotations

from pathlib import Path

from tasks.importers import Imported
from tasks.validation.findings import Finding, RuleResult, ValidationReport
from tasks.validation.native_findings import told_as_native


def _finding(file: str, line: int | None, rule: str, severity: str = "error", got: str = "7") -> Finding:
    return Finding.model_validate(
        {"file": file, "line": line, "rule": rule, "severity": severity, "got": got, "expected": "0", "action": "Mend."}
    )


def _imported(*findings: Finding) -> Imported:
    origin = {"images/train/a.png": "JPEGImages/a.png", "labels/train/a.txt": "Annotations/a.xml"}
    counts = {"pictures": 3, "boxes": 2}
    return Imported(Path("t"), findings, origin, counts, ("pit",), {"labels/train/a.txt": (12, None)})


REPORT = ValidationReport(
    accepted=True,
    findings=(
        _finding("labels/train/a.txt", 1, "box_tiny", "warning"),
        _finding("labels/train/a.txt", 2, "box_tiny", "warning"),
        _finding("images/train/b.png", None, "picture_copy", "warning", "an exact copy of images/train/a.png"),
        _finding("data.yaml, train", None, "split_boxes", "warning"),
    ),
    counts={},
    class_boxes={},
    quarantined=("images/train/a.png",),
    quarantine_reasons={"images/train/a.png": ("box_size",)},
    rules=(RuleResult(table="labels", rule="box_tiny", severity="warning", policy="reject", checked=2, broken=2),),
)


def test_places_are_those_of_the_native_files():
    told = told_as_native(REPORT, _imported())
    assert [(one.file, one.line) for one in told.findings] == [
        ("Annotations/a.xml", 12),
        ("Annotations/a.xml", None),
        ("images/train/b.png", None),
        ("data.yaml, train", None),
    ]
    assert told.findings[2].got == "an exact copy of JPEGImages/a.png"
    assert told.quarantined == ("JPEGImages/a.png",)
    assert told.quarantine_reasons == {"JPEGImages/a.png": ("box_size",)}
    assert told.accepted


def test_what_an_import_lost_comes_first_counts_and_rejects():
    lost = [_finding("Annotations/b.xml", 3, "import_number"), _finding("Annotations/c.xml", 4, "import_number")]
    told = told_as_native(REPORT, _imported(*lost))
    assert not told.accepted
    assert list(told.findings[:2]) == lost
    assert told.by_severity() == {"error": 2, "warning": 2, "notice": 0}


def test_what_an_import_only_remarks_on_does_not_reject():
    assert told_as_native(REPORT, _imported(_finding("a.xml", 1, "import_clipped", "warning"))).accepted
