"""The parts of the gate report that are told in words: the verdict, the checks, settings and origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from data_contracts.base import Contract
from tasks.gate_report.gate_case import GateCase
from tasks.gate_report.gate_text import MISSING, number_text, share_text
from tasks.gates import GateReport
from tasks.gating.gate_checks import GateCheck

Section = dict[str, Any]
RULES = {
    "first": "This is the first one.",
    "superiority": "Promotion asks for better than the champion.",
    "non-inferiority": "Promotion asks for not worse than the champion.",
}


def head_section(case: GateCase) -> Section:
    """Verdict, reasons, and the few numbers that matter most."""
    report, ours = case.report, case.evidence.candidate
    checks = report.checks
    missed, instances = (sum(getattr(one, name) for one in ours.classes) for name in ("missed", "instances"))
    good = f"{ours.overkill_pictures} of {ours.good_pictures}" if ours.good_pictures else "none there"
    return {
        "title": f"{case.manifest.name} {case.manifest.version}",
        "digest": report.digest,
        "state": "rejected" if not report.accepted else "promotable" if report.promotable else "accepted",
        "verdict": verdict_words(report),
        "reasons": [check.words for check in report.refusals],
        "promotion": report.promotion.words,
        "rule": RULES[report.rule],
        "tiles": [
            ("mAP50", share_text(ours.map50)),
            ("Defects missed", f"{missed} of {instances}"),
            ("Good parts judged NG", good),
            ("False alarms per picture", number_text(ours.false_alarms_per_picture, 2)),
            ("Checks that hold", f"{sum(check.holds for check in checks)} of {len(checks)}"),
        ],
    }


def verdict_words(report: GateReport) -> str:
    """The decision in one sentence."""
    if not report.accepted:
        count = len(report.refusals)
        words = f"Rejected: {count} {'check does' if count == 1 else 'checks do'} not hold."
        return f"{words} The champion stays." if report.champion else words
    if not report.promotable:
        return "Accepted as a candidate; it does not replace the champion."
    return "Accepted, and may replace the champion." if report.champion else "Accepted; there is no champion yet."


def checks_section(case: GateCase) -> list[Section]:
    """All checks, those that do not hold first."""
    checks = [*case.report.checks, case.report.promotion]
    return [_check(check) for check in sorted(checks, key=lambda check: check.holds)]


def _check(check: GateCheck) -> Section:
    value, limit = (MISSING if number is None else f"{number:.4g}" for number in (check.value, check.limit))
    words = check.words.removeprefix(f"{check.name}: ")
    return {"name": check.name, "holds": check.holds, "value": value, "limit": limit, "words": words}


def settings_section(case: GateCase) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Fields of the gate policy and of the measurement: name, value, what it is."""
    rule = case.manifest.verdict
    names = case.manifest.model.class_names
    chosen = [(name, f"{limit:g}", "") for name, limit in zip(names, rule.thresholds, strict=True)]
    return [
        ("Gates", _fields(case.policy)),
        ("Measurement", [*_fields(case.evidence.candidate.settings), *_engine(case)]),
        (f"Thresholds: {rule.chosen_on}", chosen),
    ]


def _fields(config: Contract) -> list[tuple[str, str, str]]:
    described = type(config).model_fields
    values = config.model_dump(mode="json")
    return [(name, _told(values[name]), described[name].description or "") for name in described]


def _told(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)


def _engine(case: GateCase) -> list[tuple[str, str, str]]:
    result, parity = case.evidence.candidate, case.evidence.parity
    words = f"{parity.compared} boxes of {parity.pictures} pictures, the bundle against the trained weights"
    return [
        ("engine", f"{result.engine}, {result.precision}", "What the numbers were measured with."),
        ("pictures_sha256", result.pictures_sha256, "Of the pictures, their true boxes and the class list."),
        ("parity", "holds" if parity.holds else "does not hold", words),
    ]


def origin_section(case: GateCase) -> list[tuple[str, str]]:
    """Where the candidate comes from."""
    return list(_origin(case))


def _origin(case: GateCase) -> Iterator[tuple[str, str]]:
    made, manifest = case.manifest.provenance, case.manifest
    yield from case.about.items()
    yield "Bundle", case.report.digest
    yield "Sealed", f"{manifest.created_at:%Y-%m-%d %H:%M:%S %Z}"
    yield "Dataset", made.dataset_name
    yield "Dataset revision", made.dataset_revision
    yield "Dataset hash", made.dataset_hash
    yield "Code", f"{made.code_commit}{' (with local changes)' if made.code_dirty else ''}"
    yield "Seed", str(made.seed)
    yield "MLflow run", made.mlflow_run_id
    yield "Compared with", case.report.champion or "no champion"
    yield "Libraries", ", ".join(f"{name} {version}" for name, version in sorted(made.versions.items()))
