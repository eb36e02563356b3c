from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.evaluation.comparison import PairedComparison
from tasks.gates import Evidence, GateReport, decide
from tasks.gating.champion_checks import Shown, pictures_needed
from tasks.gating.golden_slices import GoldenSlice
from tasks.gating.speed_result import SpeedResult
from training_fakes import class_result, comparison, evaluation, gate_policy, parity, speed

CHAMPION = evaluation(digest="d" * 64)
BETTER = comparison(difference=0.03, lower=0.01)


def alone(candidate: Any = None, **policy: Any) -> GateReport:
    """The decision where there is no champion."""
    return decide(Evidence(candidate=candidate or evaluation(), parity=parity()), gate_policy(**policy))


def against(compared: Any = BETTER, candidate: Any = None, champion: Any = CHAMPION, **policy: Any) -> GateReport:
    """The decision where there is one."""
    evidence = Evidence(
        candidate=candidate or evaluation(), parity=parity(), champion=champion, comparison=compared, speed=speed()
    )
    return decide(evidence, gate_policy(**policy))


def refused(report: GateReport) -> list[str]:
    return [check.name for check in report.refusals]


def test_a_good_candidate_is_accepted_and_promotable_without_a_champion():
    report = alone()
    assert (report.accepted, report.promotable, report.champion, report.rule) == (True, True, None, "first")
    assert not report.refusals


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        pytest.param({"map50": 0.7}, "map50: 0.7, at least 0.8", id="below the floor"),
        pytest.param({"map50": None}, "map50: there is no number (None)", id="no number"),
        pytest.param({"map50": math.nan}, "map50: there is no number (nan)", id="not a number"),
        pytest.param({"map50": math.inf}, "map50: there is no number (inf)", id="infinite"),
        pytest.param({"false_alarms_per_picture": math.nan}, "false alarms per picture: there is no", id="alarms NaN"),
        pytest.param({"false_alarms_per_picture": 0.6}, "false alarms per picture: 0.6, at most 0.5", id="alarms"),
        pytest.param({"overkill_rate": 0.4}, "overkill rate: 0.4, at most 0.2", id="overkill"),
        pytest.param({"overkill_rate": None}, "overkill rate: there is no number", id="overkill unknown"),
    ],
)
def test_one_bad_number_refuses_and_is_named(candidate: dict[str, Any], words: str):
    report = alone(evaluation(**candidate))
    assert not report.accepted
    assert not report.promotable
    assert [check.words for check in report.refusals if words in check.words], report.refusals
    assert len(report.refusals) == 1


def test_a_class_without_instances_refuses_by_name_although_the_mean_is_good():
    """Field case A07."""
    classes = (
        class_result("scratch"),
        class_result("pit", instances=0, ap50=None, ap50_95=None),
        class_result("stain"),
    )
    report = alone(evaluation(*classes, map50=0.9))
    assert set(refused(report)) == {"pit: true boxes", "pit: escape rate"}


def test_a_candidate_that_answers_nothing_is_refused_whatever_the_policy_allows():
    """Field case A13."""
    blind = evaluation(
        *(class_result(name, missed=10, ap50=0.0, ap50_95=0.0) for name in ("scratch", "pit")), map50=0.0
    )
    report = alone(blind, min_map50=0.0, max_escape_rate=1.0)
    assert refused(report) == ["answers"]
    assert "no box over the thresholds on 20 pictures" in report.refusals[0].words
    assert not report.promotable


def test_a_report_that_does_not_follow_from_its_checks_is_refused():
    """A decision is read back at promotion: one that was altered, or that rests on nothing, must not pass."""
    report = alone(evaluation(map50=0.5)).model_dump(mode="json")
    for changes in ({"accepted": True}, {"accepted": True, "promotable": True}, {"accepted": True, "checks": ()}):
        with pytest.raises(ValidationError, match="expected what the checks say"):
            GateReport.model_validate(report | changes)


EVERY_NUMBER = ["map50", "false_alarms_per_picture", "overkill_rate"]
OF_A_CLASS = ["ap50", "escape_rate"]


@pytest.mark.parametrize(
    "bad", [None, math.nan, math.inf, -math.inf], ids=["missing", "NaN", "infinite", "minus infinite"]
)
@pytest.mark.parametrize("field", [*EVERY_NUMBER, *OF_A_CLASS, "difference", "admission_lower", "promotion_lower",
                                   "seconds", "peak_mib", "int8 ap50", "int8 map50"])  # fmt: skip
def test_what_is_missing_or_no_number_anywhere_prevents_promotion_and_is_named(field: str, bad: float | None):
    classes = (class_result("scratch"), class_result("pit", **({field: bad} if field in OF_A_CLASS else {})))
    int8 = {field.removeprefix("int8 "): bad} if field.startswith("int8") else {}
    quantised = evaluation(
        class_result("scratch"), class_result("pit", **({"ap50": int8["ap50"]} if "ap50" in int8 else {})),
        precision="int8", **({"map50": int8["map50"]} if "map50" in int8 else {}),
    )  # fmt: skip
    compared = {field: bad} if field in PairedComparison.model_fields else {}
    evidence = Evidence(
        candidate=evaluation(*classes, **({field: bad} if field in EVERY_NUMBER else {})),
        parity=parity(),
        champion=CHAMPION,
        comparison=BETTER.model_copy(update=compared),
        speed=speed(**({field: bad} if field in ("seconds", "peak_mib") else {})),  # type: ignore[arg-type]
        int8=quantised,
    )
    report = decide(evidence, gate_policy())
    assert not report.promotable
    failed = [check for check in (*report.checks, report.promotion) if not check.holds]
    assert failed
    assert all("no number" in check.words for check in failed), failed


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        pytest.param({"missed": 3}, "pit: escape rate", id="too many missed"),
        pytest.param({"escape_rate": math.nan}, "pit: escape rate", id="not a number"),
        pytest.param({"instances": 2}, "pit: true boxes", id="too few instances"),
        pytest.param({"threshold": None}, "pit: known", id="class that the bundle lacks"),
        pytest.param({"ap50": math.nan}, "pit: AP50", id="AP50 not a number"),
        pytest.param({"ap50": None}, "pit: AP50", id="AP50 missing"),
    ],
)
def test_each_class_is_judged_by_itself(changes: dict[str, Any], name: str):
    assert refused(alone(evaluation(class_result("scratch"), class_result("pit", **changes)))) == [name]


def test_no_good_parts_in_the_split_ask_for_no_overkill_rate():
    assert alone(evaluation(good_pictures=0, overkill_rate=None)).accepted


def test_too_few_boxes_to_compare_is_no_fault_of_the_export():
    few = parity(holds=False, failures=["only 2 boxes over 0.25: at least 5 are needed"])
    report = decide(Evidence(candidate=evaluation(), parity=few), gate_policy())
    (words,) = [check.words for check in report.refusals]
    assert "only 2 boxes" in words
    assert "Export again" not in words


def test_broken_parity_refuses_with_its_first_failures():
    broken = parity(holds=False, failures=["a.png: IoU 0.5"], differing=1)
    report = decide(Evidence(candidate=evaluation(), parity=broken), gate_policy())
    assert refused(report) == ["parity"]
    assert "a.png: IoU 0.5" in report.refusals[0].words


NOT_WORSE = {"promote_if": "not_worse", "occasion": "new line"}


@pytest.mark.parametrize(
    ("difference", "lower", "policy", "accepted", "promotable"),
    [
        pytest.param(0.03, 0.001, {}, True, True, id="better beyond chance"),
        pytest.param(0.03, -0.001, {}, True, False, id="better, but it may be chance"),
        pytest.param(0.0, 0.0, {}, True, False, id="equal does not replace"),
        pytest.param(0.0, -0.01, NOT_WORSE, True, True, id="not worse replaces where asked for"),
        pytest.param(0.0, -0.02, NOT_WORSE, True, True, id="on the margin"),
        pytest.param(0.0, -0.03, NOT_WORSE, False, False, id="equal, but too uncertain"),
        pytest.param(-0.04, -0.05, {}, False, False, id="worse than the margin"),
        pytest.param(0.05, math.nan, {}, False, False, id="the bound is no number"),
        pytest.param(math.inf, math.inf, {}, False, False, id="infinite"),
        pytest.param(None, None, {}, False, False, id="no number at all"),
    ],
)
def test_admission_asks_for_not_worse_and_promotion_for_better(difference, lower, policy, accepted, promotable):
    report = against(comparison(difference, lower), **policy)
    assert (report.accepted, report.promotable) == (accepted, promotable)
    assert report.champion == "d" * 64


def test_each_of_the_two_decisions_has_its_own_level():
    report = against(comparison(0.03, admission_lower=0.01, promotion_lower=-0.001))
    assert (report.accepted, report.promotable) == (True, False)
    report = against(comparison(0.03, admission_lower=-0.03, promotion_lower=0.001))
    assert (report.accepted, report.promotable) == (False, False)
    (refusal,) = report.refusals
    assert "with 90 % certainty at least -0.0300" in refusal.words
    assert "with 97.5 % certainty at least +0.0010" in report.promotion.words


@pytest.mark.parametrize(
    ("policy", "rule", "words"),
    [({}, "superiority", "more than 0 is needed for better"), (NOT_WORSE, "non-inferiority", "enough: new line")],
)
def test_the_record_says_which_rule_promoted(policy: dict[str, Any], rule: str, words: str):
    report = against(**policy)
    assert report.rule == rule
    assert words in report.promotion.words


@pytest.mark.parametrize("fields", [{"promote_if": "not_worse"}, {"occasion": "new line"}])
def test_not_worse_needs_an_occasion_and_better_has_none(fields: dict[str, Any]):
    with pytest.raises(ValidationError, match="an occasion with promote_if not_worse"):
        gate_policy(**fields)


def test_the_words_say_how_many_pictures_would_decide():
    assert pictures_needed(Shown(100, 0.02, -0.02, 0.02), 0.0) == 400
    assert pictures_needed(Shown(50, 0.0, -0.06, 0.1), -0.03) == 200
    assert "about 400 pictures" in against(comparison(0.02, -0.02, pictures=100)).promotion.words
    (refusal,) = against(comparison(0.0, -0.04)).refusals
    assert "Too few pictures to tell: about 80" in refusal.words
    (refusal,) = against(comparison(-0.05, -0.06)).refusals
    assert "The candidate is worse" in refusal.words


@pytest.mark.parametrize(
    ("champion", "compared", "names"),
    [
        pytest.param({"pictures_sha256": "e" * 64}, {}, ["same pictures"], id="other pictures"),
        pytest.param(
            {"settings": evaluation().settings.model_copy(update={"match_iou": 0.3})},
            {}, ["same pictures"], id="other settings",
        ),
        pytest.param({}, {"champion": "e" * 64}, ["same pictures"], id="comparison with another champion"),
        pytest.param({}, {"candidate": "e" * 64}, ["same pictures"], id="comparison of another candidate"),
        pytest.param({}, {"pictures_sha256": "e" * 64}, ["same pictures"], id="comparison on other pictures"),
        pytest.param({}, None, ["map50 against the champion"], id="no comparison"),
    ],
)  # fmt: skip
def test_a_champion_measured_otherwise_refuses(champion, compared, names):
    made = None if compared is None else comparison(0.03, 0.01, **compared)
    assert refused(against(made, champion=CHAMPION.model_copy(update=champion))) == names


@pytest.mark.parametrize(
    ("has", "had", "classes", "accepted"),
    [
        pytest.param(["a", "b"], ["a", "b"], "same", True, id="same"),
        pytest.param(["b", "a"], ["a", "b"], "same", True, id="another order"),
        pytest.param(["a", "b", "c"], ["a", "b"], "same", False, id="grown, not allowed"),
        pytest.param(["a", "b", "c"], ["a", "b"], "may_grow", True, id="grown, allowed"),
        pytest.param(["a"], ["a", "b"], "may_grow", False, id="a class is lost"),
    ],
)
def test_class_list(has: list[str], had: list[str], classes: str, accepted: bool):
    candidate, champion = (
        evaluation(*map(class_result, names), digest=digest) for names, digest in ((has, "c" * 64), (had, "d" * 64))
    )
    report = against(candidate=candidate, champion=champion, classes=classes)
    assert refused(report) == ([] if accepted else ["class list"])


@pytest.mark.parametrize(
    ("found", "still", "holds"),
    [
        pytest.param(10, 10, True, id="all still found"),
        pytest.param(10, 8, True, id="at the limit"),
        pytest.param(10, 7, False, id="over the limit"),
        pytest.param(3, 0, False, id="all of a small slice"),
        pytest.param(2, 0, True, id="too few to tell"),
    ],
)
def test_what_the_champion_found_must_still_be_found(found: int, still: int, holds: bool):
    one = GoldenSlice(name="pit", instances=12, champion_found=found, still_found=still, newly_found=2)
    report = against(comparison(0.03, 0.01, slices=(one,)))
    assert refused(report) == ([] if holds else ["pit: forgotten"])
    if not holds:
        assert f"{found - still} are missed" in report.refusals[0].words


def int8_result(instances: int = 200, map50: float | None = 0.9, missed: int = 0, **ap50: float | None) -> Any:
    classes = (class_result(name, instances, missed, ap50=value) for name, value in ap50.items())
    return evaluation(*classes, precision="int8", map50=map50)


@pytest.mark.parametrize(
    ("int8", "names"),
    [
        pytest.param(int8_result(scratch=0.9, pit=0.9, map50=0.88), ["map50: loss by INT8"], id="the mean loses"),
        pytest.param(int8_result(scratch=0.9, pit=0.9, map50=None), ["map50: loss by INT8"], id="no mean"),
        pytest.param(int8_result(scratch=0.9, pit=0.9, missed=200), ["answers of INT8"], id="nothing is found"),
        pytest.param(int8_result(scratch=0.895, pit=0.9), [], id="within the limit"),
        pytest.param(int8_result(scratch=0.88, pit=0.9), ["scratch: loss by INT8"], id="one class loses"),
        pytest.param(int8_result(scratch=math.nan, pit=0.9), ["scratch: loss by INT8"], id="not a number"),
        pytest.param(int8_result(pit=0.9), ["scratch: loss by INT8"], id="a class is missing"),
        pytest.param(evaluation(pictures_sha256="e" * 64), ["INT8"], id="other pictures"),
        pytest.param(evaluation(digest="e" * 64), ["INT8"], id="another bundle"),
    ],
)
def test_int8_against_fp32_class_by_class(int8: Any, names: list[str]):
    fp32 = evaluation(class_result("scratch", 200), class_result("pit", 200))
    assert refused(decide(Evidence(candidate=fp32, parity=parity(), int8=int8), gate_policy())) == names


@pytest.mark.parametrize(("after", "names"), [(0.8, []), (0.79, ["pit: loss by INT8"])])
def test_one_true_box_of_a_rare_class_is_no_loss(after: float, names: list[str]):
    int8 = int8_result(10, scratch=0.9, pit=after)
    assert refused(decide(Evidence(candidate=evaluation(), parity=parity(), int8=int8), gate_policy())) == names


@pytest.mark.parametrize(
    ("measured", "names"),
    [
        pytest.param(speed(), [], id="equal"),
        pytest.param(speed(seconds=0.0119), [], id="a little slower"),
        pytest.param(speed(seconds=0.013), ["time at batch 8"], id="slower"),
        pytest.param(speed(seconds=math.nan), ["time at batch 8"], id="time not a number"),
        pytest.param(speed(seconds=None), ["time at batch 8"], id="time missing"),
        pytest.param(speed(peak_mib=121.0), ["memory at batch 8"], id="larger"),
        pytest.param(speed(peak_mib=math.inf), ["memory at batch 8"], id="memory infinite"),
        pytest.param(speed(candidate="e" * 64), ["speed"], id="another bundle"),
        pytest.param(None, ["speed"], id="not measured"),
    ],
)
def test_time_and_memory_against_the_champion(measured: SpeedResult | None, names: list[str]):
    evidence = Evidence(candidate=evaluation(), parity=parity(), champion=CHAMPION, comparison=BETTER, speed=measured)
    assert refused(decide(evidence, gate_policy())) == names


def test_the_report_survives_json():
    report = against(comparison(0.03, 0.01), candidate=evaluation(map50=math.nan))
    assert GateReport.model_validate_json(report.to_json()) == report
