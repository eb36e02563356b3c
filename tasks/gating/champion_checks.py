"""The checks of a candidate against today's champion: to be registered, and to replace it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tasks.evaluation.comparison import PairedComparison, are_paired
from tasks.evaluation.evaluation_result import EvaluationResult
from tasks.gating.gate_checks import GateCheck, yes_or_no
from tasks.gating.gate_policy import GatePolicy
from tasks.gating.golden_slices import forgetting_checks


def champion_checks(
    candidate: EvaluationResult, champion: EvaluationResult, comparison: PairedComparison | None, policy: GatePolicy
) -> Iterable[GateCheck]:
    """Same pictures, class list, not worse, nothing forgotten."""
    yield _same_pictures_check(candidate, champion, comparison)
    yield _class_list_check(candidate, champion, policy)
    yield not_worse_check(f"{policy.compared} against the champion", shown_for_admission(comparison), policy)
    if comparison is not None:
        yield from forgetting_checks(comparison.slices, policy)


def _same_pictures_check(
    candidate: EvaluationResult, champion: EvaluationResult, comparison: PairedComparison | None
) -> GateCheck:
    about = (candidate.digest, champion.digest, candidate.pictures_sha256)
    same = are_paired(candidate, champion) and (
        comparison is None or about == (comparison.candidate, comparison.champion, comparison.pictures_sha256)
    )
    bad = "the champion was measured on other pictures or with other settings. Evaluate it again on this test split."
    return yes_or_no("same pictures", holds=same, good="candidate and champion were measured alike.", bad=bad)


def _class_list_check(candidate: EvaluationResult, champion: EvaluationResult, policy: GatePolicy) -> GateCheck:
    """Known classes are those with a threshold. Whoever reads the verdicts may rely on the champion's class list."""
    has, had = ([one.name for one in result.classes if one.threshold is not None] for result in (candidate, champion))
    lost, new = sorted(set(had) - set(has)), sorted(set(has) - set(had))
    holds = not lost and (policy.classes == "may_grow" or not new)
    words = f"lost {', '.join(lost) or 'nothing'}, new {', '.join(new) or 'nothing'}"
    good = f"fits the champion's ({words})."
    bad = f"{words}. Keep the classes, or allow it in gates.classes."
    return yes_or_no("class list", holds=holds, good=good, bad=bad)


@dataclass(frozen=True)
class Shown:
    """What a comparison shows at one level: the measured difference and its lower bound."""

    pictures: int
    difference: float
    lower: float
    level: float

    def __str__(self) -> str:
        return (
            f"{self.difference:+.4f} to the champion on {self.pictures} pictures, "
            f"with {100 * (1 - self.level):g} % certainty at least {self.lower:+.4f}"
        )


def shown_for_admission(comparison: PairedComparison | None) -> Shown | None:
    """None where a number is missing or not finite."""
    if comparison is None:
        return None
    return _shown(comparison, comparison.admission_lower, comparison.admission_level)


def shown_for_promotion(comparison: PairedComparison | None) -> Shown | None:
    """None where a number is missing or not finite."""
    if comparison is None:
        return None
    return _shown(comparison, comparison.promotion_lower, comparison.promotion_level)


def _shown(comparison: PairedComparison, lower: float | None, level: float) -> Shown | None:
    difference = comparison.difference
    if difference is None or lower is None or not (math.isfinite(difference) and math.isfinite(lower)):
        return None
    return Shown(comparison.pictures, difference, lower, level)


def not_worse_check(name: str, shown: Shown | None, policy: GatePolicy) -> GateCheck:
    """Non-inferiority: the lower bound of the difference lies within the margin."""
    limit = -policy.margin
    if shown is None:
        return _without_numbers(name, limit)
    holds = shown.lower >= limit
    words = f"{name}: {shown}, at least {limit:g} is needed for not worse."
    if not holds and shown.difference > limit:
        needed = pictures_needed(shown, limit)
        words += f" Too few pictures to tell: about {needed} would be enough if the difference stays."
    elif not holds:
        words += " The candidate is worse. Train longer or on more data."
    return GateCheck(name=name, holds=holds, value=shown.lower, limit=limit, words=words)


def better_check(name: str, shown: Shown | None) -> GateCheck:
    """Superiority: the lower bound of the difference lies above zero."""
    if shown is None:
        return _without_numbers(name, 0.0)
    holds = shown.lower > 0
    words = f"{name}: {shown}, more than 0 is needed for better."
    if not holds and shown.difference > 0:
        needed = pictures_needed(shown, 0.0)
        words += f" It may be chance: about {needed} pictures would be enough if the difference stays."
    return GateCheck(name=name, holds=holds, value=shown.lower, limit=0.0, words=words)


def promotion_check(
    champion: EvaluationResult | None, comparison: PairedComparison | None, policy: GatePolicy
) -> GateCheck:
    """Whether the candidate may replace the champion, by the rule that the policy names for this job."""
    name = f"{policy.compared} for promotion"
    if champion is None:
        return yes_or_no(name, holds=True, good="there is no champion yet.")
    shown = shown_for_promotion(comparison)
    if policy.rule == "superiority":
        return better_check(name, shown)
    check = not_worse_check(name, shown, policy)
    return check.model_copy(update={"words": f"{check.words} Not worse is enough: {policy.occasion}."})


def pictures_needed(shown: Shown, limit: float) -> int:
    """Pictures with which the lower bound would reach `limit`: its distance shrinks with the root of their number.

    >>> pictures_needed(Shown(100, difference=0.02, lower=-0.02, level=0.02), limit=0.0)
    400
    """
    factor = (shown.difference - shown.lower) / (shown.difference - limit)
    return math.ceil(round(shown.pictures * factor**2, 6))


def _without_numbers(name: str, limit: float) -> GateCheck:
    words = f"{name}: the comparison has no number. Evaluate both again on this test split."
    return GateCheck(name=name, holds=False, value=None, limit=limit, words=words)
