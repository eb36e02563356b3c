"""What validation says about a dataset."""

from __future__ import annotations

from collections import Counter

from data_contracts.base import Contract
from tasks.expectations import Severity


class Finding(Contract):
    """One rule that one place of the dataset breaks."""

    file: str
    line: int | None
    rule: str
    severity: Severity
    got: str
    expected: str
    action: str

    def __str__(self) -> str:
        place = self.file if not self.line else f"{self.file}:{self.line}"
        end = "" if self.got.endswith(("?", ".")) else "."
        return f"{place}: expected {self.expected}, got {self.got}{end} {self.action} [{self.rule}]"


class ValidationReport(Contract):
    """The verdict on a dataset, all findings, and what was counted."""

    accepted: bool
    findings: tuple[Finding, ...]
    counts: dict[str, dict[str, int]]
    """Per split: pictures, labelled, empty, missing (label files), boxes."""
    class_boxes: dict[str, dict[str, int]]
    """Boxes per class and split."""

    def by_severity(self) -> dict[str, int]:
        """Number of findings per severity, zeros included."""
        counted = Counter(finding.severity for finding in self.findings)
        return {"error": counted["error"], "warning": counted["warning"], "notice": counted["notice"]}

    def summary(self) -> str:
        """One line: verdict, pictures, boxes, findings."""
        verdict = "accepted" if self.accepted else "rejected"
        pictures = sum(split["pictures"] for split in self.counts.values())
        boxes = sum(split["boxes"] for split in self.counts.values())
        counted = self.by_severity().items()
        found = ", ".join(f"{count} {severity}{'' if count == 1 else 's'}" for severity, count in counted)
        return f"{verdict}: {pictures} pictures, {boxes} boxes; {found}"
