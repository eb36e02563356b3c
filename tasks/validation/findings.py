"""What validation says about a dataset."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import Field

from data_contracts.base import Contract
from tasks.validation.expectations import Severity

Policy = Literal["reject", "quarantine"]


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


class RuleResult(Contract):
    """What one rule found: in how many rows of its table it looked, and how many break it."""

    table: str
    rule: str
    severity: Severity
    policy: Policy
    checked: int
    broken: int


class ValidationReport(Contract):
    """The verdict on a dataset, all findings, and what was counted."""

    accepted: bool
    findings: tuple[Finding, ...]
    counts: dict[str, dict[str, int]]
    """Per split: pictures, labelled, empty, listed as backgrounds, missing (label files), boxes."""
    class_boxes: dict[str, dict[str, int]]
    """Boxes per class and split."""
    quarantined: tuple[str, ...] = ()
    """Pictures kept out of training, as paths relative to the dataset folder."""
    quarantine_reasons: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The rules that each picture in quarantine breaks."""
    rules: tuple[RuleResult, ...] = ()
    """Every rule that was applied, also those that nothing breaks."""

    def by_severity(self) -> dict[str, int]:
        """Number of broken places per severity, zeros included; findings beyond the most that are listed count too."""
        counted = Counter(finding.severity for finding in self.findings)
        if self.rules:
            counted = Counter(dict.fromkeys(counted, 0))
            for result in self.rules:
                counted[result.severity] += result.broken
        return {"error": counted["error"], "warning": counted["warning"], "notice": counted["notice"]}

    def summary(self) -> str:
        """One line: verdict, pictures, boxes, findings."""
        verdict = "accepted" if self.accepted else "rejected"
        pictures = sum(split["pictures"] for split in self.counts.values())
        boxes = sum(split["boxes"] for split in self.counts.values())
        kept_out = f" ({len(self.quarantined)} in quarantine)" if self.quarantined else ""
        counted = self.by_severity().items()
        found = ", ".join(f"{count} {severity}{'' if count == 1 else 's'}" for severity, count in counted)
        return f"{verdict}: {pictures} pictures{kept_out}, {boxes} boxes; {found}"
