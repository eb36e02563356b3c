"""The report on an imported dataset, told in the paths and lines of the files that a person has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from tasks.importers import Imported
from tasks.validation.findings import Finding, RuleResult, ValidationReport

_WORD = re.compile(r"[^\s,;]+")


def told_as_native(report: ValidationReport, imported: Imported) -> ValidationReport:
    """`report` on the folder that an import made, with the import's own findings first and native places throughout.

    An error of the import stands for something lost: it rejects.
    """
    native = tuple(_native(finding, imported) for finding in report.findings)
    lost = any(finding.severity == "error" for finding in imported.findings)
    origin = imported.origin
    return report.model_copy(
        update={
            "accepted": report.accepted and not lost,
            "findings": (*imported.findings, *native),
            "quarantined": tuple(origin.get(path, path) for path in report.quarantined),
            "quarantine_reasons": {origin.get(path, path): why for path, why in report.quarantine_reasons.items()},
            "rules": (*_import_rules(imported), *report.rules),
        }
    )


def _native(finding: Finding, imported: Imported) -> Finding:
    lines = imported.lines.get(finding.file, ())
    line = lines[finding.line - 1] if finding.line and finding.line <= len(lines) else None
    changed = {"file": imported.origin.get(finding.file, finding.file), "line": line}
    return finding.model_copy(update=changed | {"got": _told(finding.got, imported.origin)})


def _told(words: str, origin: Mapping[str, str]) -> str:
    """The words with every path of the target replaced by the native one.

    >>> _told("an exact copy of images/train/a.png", {"images/train/a.png": "JPEGImages/a.png"})
    'an exact copy of JPEGImages/a.png'
    """
    return _WORD.sub(lambda found: origin.get(found[0], found[0]), words)


def _import_rules(imported: Imported) -> list[RuleResult]:
    counted = Counter((finding.rule, finding.severity) for finding in imported.findings)
    return [
        RuleResult(
            table="import", rule=rule, severity=severity, policy="reject", checked=imported.counts["pictures"],
            broken=count,
        )
        for (rule, severity), count in counted.items()
    ]  # fmt: skip
