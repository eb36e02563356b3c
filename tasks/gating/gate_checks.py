"""The checks of a candidate by itself. A number that is missing or not finite refuses: no evidence, no pass."""

from __future__ import annotations

import math
from collections.abc import Iterable

from data_contracts.base import Contract
from tasks.evaluation.evaluation_result import ClassResult, EvaluationResult
from tasks.gating.gate_policy import GatePolicy
from tasks.parity import ParityResult


class GateCheck(Contract):
    """One check. `words` say what was found, and where it fails what to do."""

    name: str
    holds: bool
    value: float | None
    limit: float | None
    words: str


def is_number(value: float | None) -> bool:
    """Whether it is there and finite."""
    return value is not None and math.isfinite(value)


def told(value: float | None) -> str:
    """A number in four digits, or that there is none."""
    return "no number" if value is None else f"{value:.4g}"


def at_least(name: str, value: float | None, limit: float, action: str) -> GateCheck:
    """A number that must reach `limit`."""
    return _check(name, value, limit, "at least", value is not None and value >= limit, action)


def at_most(name: str, value: float | None, limit: float, action: str) -> GateCheck:
    """A number that must not pass `limit`."""
    return _check(name, value, limit, "at most", value is not None and value <= limit, action)


def _check(name: str, value: float | None, limit: float, relation: str, holds: bool, action: str) -> GateCheck:
    if value is None or not math.isfinite(value):
        words = f"{name}: there is no number ({value}), {relation} {limit:g} is needed. {action}"
        return GateCheck(name=name, holds=False, value=None, limit=limit, words=words)
    words = f"{name}: {value:.4g}, {relation} {limit:g} is needed."
    return GateCheck(name=name, holds=holds, value=value, limit=limit, words=words if holds else f"{words} {action}")


def yes_or_no(name: str, *, holds: bool, good: str = "", bad: str = "") -> GateCheck:
    """A check without a number."""
    return GateCheck(name=name, holds=holds, value=None, limit=None, words=f"{name}: {good if holds else bad}")


def floor_checks(candidate: EvaluationResult, policy: GatePolicy) -> Iterable[GateCheck]:
    """Absolute limits, over the split and class by class."""
    yield answers_check("answers", candidate)
    yield at_least("map50", candidate.map50, policy.min_map50, "Train longer or on more data.")
    for result in candidate.classes:
        yield from class_checks(result, policy)
    yield from overkill_checks(candidate, policy)


def answers_check(name: str, result: EvaluationResult) -> GateCheck:
    """Whatever the policy allows: a model that answers nothing at all is never registered."""
    over = sum(one.found + one.false_alarms for one in result.classes)
    good = f"{over} boxes over the thresholds on {result.pictures} pictures."
    bad = f"no box over the thresholds on {result.pictures} pictures. Train longer; its scores are in the gate report."
    return yes_or_no(name, holds=over > 0, good=good, bad=bad)


def class_checks(result: ClassResult, policy: GatePolicy) -> Iterable[GateCheck]:
    """Each class by itself: a mean would hide a class that was never tested."""
    name = result.name
    more = f"Add pictures of {name} to the test split."
    yield at_least(f"{name}: true boxes", float(result.instances), float(policy.min_instances), more)
    if result.instances and not is_number(result.ap50):
        bad = f"there is no number ({result.ap50}). Look at what the candidate answers: its scores may be no numbers."
        yield yes_or_no(f"{name}: AP50", holds=False, bad=bad)
    if result.threshold is None:
        yield yes_or_no(f"{name}: known", holds=False, bad="the candidate lacks it. Train on this dataset.")
    missed = f"{result.instances - result.found} of {result.instances} defects are missed"
    worse = f"{missed}. Look at them in the gate report; train longer or add such pictures of {name}."
    yield at_most(f"{name}: escape rate", result.escape_rate, policy.max_escape_rate, worse)


def overkill_checks(candidate: EvaluationResult, policy: GatePolicy) -> Iterable[GateCheck]:
    """Alarms on good parts. Without pictures of good parts the rate says nothing, and is not asked for."""
    action = "Add pictures without defects to the training data, or raise thresholds."
    if candidate.good_pictures:
        yield at_most("overkill rate", candidate.overkill_rate, policy.max_overkill_rate, action)
    limit = policy.max_false_alarms_per_picture
    yield at_most("false alarms per picture", candidate.false_alarms_per_picture, limit, action)


def parity_check(parity: ParityResult) -> GateCheck:
    """The bundle must find what the trained weights find."""
    good = f"{parity.compared} boxes agree with the trained weights."
    first = "; ".join(parity.failures[:3]) or "no reason given"
    if parity.differing:
        bad = f"the bundle differs from the trained weights: {first}. Export again."
    else:
        bad = f"whether the bundle finds what the trained weights find could not be told: {first}. Train longer."
    return yes_or_no("parity", holds=parity.holds, good=good, bad=bad)
