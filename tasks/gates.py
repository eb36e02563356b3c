"""Decide whether a candidate may be registered, and whether it may replace today's champion. `decide` is pure.

A refusal is a result, not an error. A number that is missing or not finite refuses: nothing passes for want of
evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from prefect import task
from pydantic import Field

from data_contracts.base import Contract, Fraction
from tasks.evaluate import ClassResult, EvaluationResult
from tasks.parity import ParityResult
from tasks.run_log import current_logger

GATES_FILE = "gates.json"


class GatePolicy(Contract):
    """What a candidate must reach, on the test split."""

    min_map50: Fraction = Field(description="Least mAP50.")
    min_instances: int = Field(ge=1, description="Least true boxes of each class, for its numbers to mean anything.")
    max_escape_rate: Fraction = Field(description="Most missed true boxes of each class, as a share.")
    max_overkill_rate: Fraction = Field(description="Most pictures without defects judged NG, as a share.")
    max_false_alarms_per_picture: float = Field(ge=0, allow_inf_nan=False, description="Most false boxes per picture.")
    compared: Literal["map50", "map50_95"] = Field(description="The number that is compared with the champion's.")
    margin: Fraction = Field(description="How far below the champion a candidate may lie and still be registered.")
    promote_if: Literal["better", "better_or_equal"] = Field(description="What replaces the champion.")
    classes: Literal["same", "may_grow"] = Field(description="Whether the candidate may know more classes.")


class GateCheck(Contract):
    """One check. `words` say what was found, and where it fails what to do."""

    name: str
    holds: bool
    value: float | None
    limit: float | None
    words: str


class GateReport(Contract):
    """All checks of one candidate. `accepted`: may be registered; `promotable`: may replace the champion, too."""

    digest: str
    champion: str | None = Field(description="Digest that it was compared with.")
    accepted: bool
    promotable: bool
    checks: tuple[GateCheck, ...]
    promotion: GateCheck

    @property
    def refusals(self) -> tuple[GateCheck, ...]:
        """The checks that do not hold."""
        return tuple(check for check in self.checks if not check.holds)


def at_least(name: str, value: float | None, limit: float, action: str) -> GateCheck:
    """A number that must reach `limit`."""
    return _check(name, value, limit, "at least", value is not None and value >= limit, action)


def at_most(name: str, value: float | None, limit: float, action: str) -> GateCheck:
    """A number that must not pass `limit`."""
    return _check(name, value, limit, "at most", value is not None and value <= limit, action)


def _check(name: str, value: float | None, limit: float, relation: str, holds: bool, action: str) -> GateCheck:
    if value is None or not math.isfinite(value):
        return GateCheck(
            name=name,
            holds=False,
            value=None,
            limit=limit,
            words=f"{name}: there is no number ({value}), {relation} {limit:g} is needed. {action}",
        )
    words = f"{name}: {value:.4g}, {relation} {limit:g} is needed."
    return GateCheck(name=name, holds=holds, value=value, limit=limit, words=words if holds else f"{words} {action}")


def _yes_or_no(name: str, *, holds: bool, good: str = "", bad: str = "") -> GateCheck:
    return GateCheck(name=name, holds=holds, value=None, limit=None, words=f"{name}: {good if holds else bad}")


def class_checks(result: ClassResult, policy: GatePolicy) -> Iterable[GateCheck]:
    """Each class by itself: a mean would hide a class that was never tested."""
    name = result.name
    more = f"Add pictures of {name} to the test split."
    yield at_least(f"{name}: true boxes", float(result.instances), float(policy.min_instances), more)
    if result.threshold is None:
        yield _yes_or_no(f"{name}: known", holds=False, bad="the candidate lacks it. Train on this dataset.")
    worse = f"Look at the missed boxes of {name}; add such pictures or lower its threshold."
    yield at_most(f"{name}: escape rate", result.escape_rate, policy.max_escape_rate, worse)


def overkill_checks(candidate: EvaluationResult, policy: GatePolicy) -> Iterable[GateCheck]:
    """Alarms on good parts. Without pictures of good parts the rate says nothing, and is not asked for."""
    action = "Add pictures without defects to the training data, or raise thresholds."
    if candidate.good_pictures:
        yield at_most("overkill rate", candidate.overkill_rate, policy.max_overkill_rate, action)
    limit = policy.max_false_alarms_per_picture
    yield at_most("false alarms per picture", candidate.false_alarms_per_picture, limit, action)


def champion_checks(candidate: EvaluationResult, champion: EvaluationResult, policy: GatePolicy) -> Iterable[GateCheck]:
    """Against today's champion, on the same pictures."""
    same = candidate.pictures_sha256 == champion.pictures_sha256 and candidate.settings == champion.settings
    bad = "the champion was measured on other pictures or with other settings. Evaluate it again on this test split."
    yield _yes_or_no("same pictures", holds=same, good="candidate and champion were measured alike.", bad=bad)
    yield _class_list_check(candidate, champion, policy)
    limit = _compared(champion, policy)
    name = f"{policy.compared} against the champion"
    if limit is None or not math.isfinite(limit):
        bad = f"the champion has no number ({limit}). Evaluate it again on this test split."
        yield _yes_or_no(name, holds=False, bad=bad)
    else:
        action = f"The champion has {limit:.4g}. Train longer or on more data."
        yield at_least(name, _compared(candidate, policy), limit - policy.margin, action)


def _class_list_check(candidate: EvaluationResult, champion: EvaluationResult, policy: GatePolicy) -> GateCheck:
    """Known classes are those with a threshold. Whoever reads the verdicts may rely on the champion's class list."""
    has, had = ([one.name for one in result.classes if one.threshold is not None] for result in (candidate, champion))
    lost, new = sorted(set(had) - set(has)), sorted(set(has) - set(had))
    holds = not lost and (policy.classes == "may_grow" or not new)
    words = f"lost {lost or 'nothing'}, new {new or 'nothing'}"
    good = f"fits the champion's ({words})."
    bad = f"{words}. Keep the classes, or allow it in gates.classes."
    return _yes_or_no("class list", holds=holds, good=good, bad=bad)


def parity_check(parity: ParityResult) -> GateCheck:
    """The bundle must find what the trained weights find."""
    good = f"{parity.compared} boxes agree with the trained weights."
    first = "; ".join(parity.failures[:3]) or "no reason given"
    bad = f"the bundle differs from the trained weights: {first}. Export again."
    return _yes_or_no("parity", holds=parity.holds, good=good, bad=bad)


def promotion_check(candidate: EvaluationResult, champion: EvaluationResult | None, policy: GatePolicy) -> GateCheck:
    """Whether the candidate is better than the champion, as far as the policy asks for it."""
    name = f"{policy.compared} for promotion"
    value, limit = _compared(candidate, policy), None if champion is None else _compared(champion, policy)
    if champion is None:
        return _yes_or_no(name, holds=True, good="there is no champion yet.")
    if value is None or limit is None or not (math.isfinite(value) and math.isfinite(limit)):
        words = f"{name}: there is no number to compare ({value} against {limit})."
        return GateCheck(name=name, holds=False, value=None, limit=None, words=words)
    holds = value > limit or (policy.promote_if == "better_or_equal" and value == limit)
    relation = "more than" if policy.promote_if == "better" else "at least"
    words = f"{name}: {value:.4g}, {relation} the champion's {limit:.4g} is needed."
    return GateCheck(name=name, holds=holds, value=value, limit=limit, words=words)


def _compared(result: EvaluationResult, policy: GatePolicy) -> float | None:
    return result.map50 if policy.compared == "map50" else result.map50_95


def decide(
    candidate: EvaluationResult, champion: EvaluationResult | None, parity: ParityResult, policy: GatePolicy
) -> GateReport:
    """All checks at once; `champion` is today's, measured on the same pictures, or None when there is none."""
    checks = [at_least("map50", candidate.map50, policy.min_map50, "Train longer or on more data.")]
    for result in candidate.classes:
        checks += class_checks(result, policy)
    checks += overkill_checks(candidate, policy)
    checks.append(parity_check(parity))
    if champion is not None:
        checks += champion_checks(candidate, champion, policy)
    accepted = all(check.holds for check in checks)
    promotion = promotion_check(candidate, champion, policy)
    return GateReport(
        digest=candidate.digest,
        champion=None if champion is None else champion.digest,
        accepted=accepted,
        promotable=accepted and promotion.holds,
        checks=tuple(checks),
        promotion=promotion,
    )


@task
def decide_gates(
    candidate: EvaluationResult,
    champion: EvaluationResult | None,
    parity: ParityResult,
    policy: GatePolicy,
    folder: Path,
) -> GateReport:
    """Decide on a candidate, say in the log why, and keep the report in `folder` as gates.json."""
    report = decide(candidate, champion, parity, policy)
    (folder / GATES_FILE).write_text(report.to_json(), encoding="utf-8")
    log = current_logger()
    for check in (*report.checks, report.promotion):
        log.info("%s %s", "holds: " if check.holds else "REFUSED:", check.words)
    return report
