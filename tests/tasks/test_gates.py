from __future__ import annotations

import math
from typing import Any

import pytest

from tasks.gates import GatePolicy, decide
from training_fakes import class_result, evaluation, parity

POLICY = GatePolicy(
    min_map50=0.8, min_instances=3, max_escape_rate=0.2, max_overkill_rate=0.2, max_false_alarms_per_picture=0.5,
    compared="map50", margin=0.02, promote_if="better", classes="same",
)  # fmt: skip


def policy(**changes: Any) -> GatePolicy:
    return POLICY.model_copy(update=changes)


def test_a_good_candidate_is_accepted_and_promotable_without_a_champion():
    report = decide(evaluation(), None, parity(), POLICY)
    assert report.accepted
    assert report.promotable
    assert report.champion is None
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
    report = decide(evaluation(**candidate), None, parity(), POLICY)
    assert not report.accepted
    assert not report.promotable
    assert [check.words for check in report.refusals if words in check.words], report.refusals
    assert len(report.refusals) == 1


def test_a_class_without_instances_refuses_by_name_although_the_mean_is_good():
    classes = (
        class_result("scratch"),
        class_result("pit", instances=0, ap50=None, ap50_95=None),
        class_result("stain"),
    )
    report = decide(evaluation(*classes, map50=0.9), None, parity(), POLICY)
    assert {check.name for check in report.refusals} == {"pit: true boxes", "pit: escape rate"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        pytest.param({"missed": 3}, "pit: escape rate", id="too many missed"),
        pytest.param({"escape_rate": math.nan}, "pit: escape rate", id="not a number"),
        pytest.param({"instances": 2}, "pit: true boxes", id="too few instances"),
        pytest.param({"threshold": None}, "pit: known", id="class that the bundle lacks"),
    ],
)
def test_each_class_is_judged_by_itself(changes: dict[str, Any], name: str):
    report = decide(evaluation(class_result("scratch"), class_result("pit", **changes)), None, parity(), POLICY)
    assert [check.name for check in report.refusals] == [name]


def test_no_good_parts_in_the_split_ask_for_no_overkill_rate():
    report = decide(evaluation(good_pictures=0, overkill_rate=None), None, parity(), POLICY)
    assert report.accepted


def test_broken_parity_refuses_with_its_first_failures():
    report = decide(evaluation(), None, parity(holds=False, failures=["a.png: IoU 0.5"]), POLICY)
    assert [check.name for check in report.refusals] == ["parity"]
    assert "a.png: IoU 0.5" in report.refusals[0].words


@pytest.mark.parametrize(
    ("candidate", "champion", "promote_if", "accepted", "promotable"),
    [
        pytest.param(0.95, 0.9, "better", True, True, id="better"),
        pytest.param(0.9, 0.9, "better", True, False, id="equal does not replace"),
        pytest.param(0.9, 0.9, "better_or_equal", True, True, id="equal replaces where asked for"),
        pytest.param(0.89, 0.9, "better_or_equal", True, False, id="a little worse is registered only"),
        pytest.param(0.87, 0.9, "better_or_equal", False, False, id="worse than the margin"),
        pytest.param(0.9, math.nan, "better", False, False, id="the champion has no number"),
        pytest.param(0.9, None, "better", False, False, id="the champion has none at all"),
    ],
)
def test_against_the_champion(candidate, champion, promote_if, accepted, promotable):
    report = decide(
        evaluation(map50=candidate),
        evaluation(map50=champion, digest="d" * 64),
        parity(),
        policy(promote_if=promote_if),
    )
    assert (report.accepted, report.promotable) == (accepted, promotable)
    assert report.champion == "d" * 64


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"pictures_sha256": "e" * 64}, id="other pictures"),
        pytest.param({"settings": evaluation().settings.model_copy(update={"match_iou": 0.3})}, id="other settings"),
    ],
)
def test_a_champion_measured_otherwise_refuses(changes: dict[str, Any]):
    report = decide(evaluation(), evaluation(**changes), parity(), policy(promote_if="better_or_equal"))
    assert [check.name for check in report.refusals] == ["same pictures"]


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
    candidate, champion = (evaluation(*map(class_result, names)) for names in (has, had))
    report = decide(candidate, champion, parity(), policy(classes=classes, promote_if="better_or_equal"))
    assert report.accepted == accepted


def test_the_report_survives_json():
    report = decide(evaluation(map50=math.nan), None, parity(), POLICY)
    assert type(report).model_validate_json(report.to_json()) == report
