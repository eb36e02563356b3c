from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from builders import GREEN, RED, make_bundle
from data_contracts.bundle import VerdictRule
from data_contracts.dataset import Split
from data_contracts.detections import Verdict
from data_contracts.errors import DatasetError
from made_results import NAMES, made_detections, made_truth, measured
from serving.bundle import open_bundle
from tasks.evaluate import PICTURES_FILE, class_results, evaluate, hash_pictures, measure, write_result
from tasks.evaluation.average_precision import average_precisions
from tasks.evaluation.evaluation_result import ClassIntervals, EvaluationResult, flat_metrics
from tasks.evaluation.operating_point import picture_counts
from tasks.evaluation.picture_scores import SCORES_FILE, load_scores
from training_fakes import EVALUATE, boxes, patch_picture, truth

TRUE_BOX = (10, 10, 30, 30)
ELSEWHERE = (60, 60, 80, 80)
TEN_OF_ONE_CLASS = (0.95, True), (0.90, True), (0.85, False), (0.80, True), (0.75, True), (0.70, False), (0.65, True), (
    0.60, False), (0.55, True), (0.50, True), (0.45, False), (0.40, False)  # fmt: skip


def ten_pictures():
    """Ten pictures with one true box each, twelve boxes found: seven are true.

    Worked out by hand (true ones found so far / boxes so far): 1/1, 2/2, 2/3, 3/4, 4/5, 4/6, 5/7, 5/8, 6/9, 7/10, 7/11,
    7/12. The best precision at each recall or later is 1 up to recall 0.2, 4/5 up to 0.4, 5/7 up to 0.5, 7/10 up to
    0.7, then 0. COCO takes the mean over the recalls 0, 0.01 ... 1; its 0.70 is 0.7000000000000001 and so the first
    that is not reached: 21 points at 1, 20 at 4/5, 10 at 5/7, 19 at 7/10.
    """
    true = [truth((*TRUE_BOX, 0), picture=f"{number}.png") for number in range(10)]
    rows: list[list] = [[] for _ in range(10)]
    hits = iter(range(10))
    for score, is_true in TEN_OF_ONE_CLASS:
        if is_true:
            rows[next(hits)].append((*TRUE_BOX, score, 0))
        else:
            rows[9].append((*ELSEWHERE, score, 0))
    return true, [boxes(*picture) for picture in rows]


BY_HAND = (21 + 20 * 4 / 5 + 10 * 5 / 7 + 19 * 7 / 10) / 101


@pytest.mark.parametrize(
    ("threshold", "found", "false_alarms"),
    [
        pytest.param(0.5, 7, 3, id="half"),
        pytest.param(0.72, 4, 1, id="high"),
        pytest.param(0.97, 0, 0, id="over everything"),
        pytest.param(0.01, 7, 5, id="under everything"),
    ],
)
def test_thresholds_move_the_operating_point_and_never_the_average_precision(threshold, found, false_alarms):
    """Field case A15."""
    true, detections = ten_pictures()
    rule = VerdictRule(kind="any_box_over_threshold", thresholds=(threshold,), chosen_on="a test")
    counts, precisions = measure(true, detections, rule, ["pit"], ["pit"], EVALUATE)
    assert precisions.at_50.tolist() == [pytest.approx(BY_HAND, abs=1e-9)]
    assert precisions.means == (pytest.approx(BY_HAND), pytest.approx(BY_HAND))
    assert (counts.found.tolist(), counts.false_alarms.tolist()) == ([found], [false_alarms])


def test_a_threshold_below_the_score_floor_lets_no_further_boxes_into_the_average_precision():
    true = [truth((*TRUE_BOX, 0))]
    found = [boxes((*ELSEWHERE, 0.5, 0), (*TRUE_BOX, 0.0005, 0))]
    rule = VerdictRule(kind="any_box_over_threshold", thresholds=(0.0002,), chosen_on="a test")
    counts, precisions = measure(true, found, rule, ["pit"], ["pit"], EVALUATE)
    assert precisions.at_50.tolist() == [0.0]
    assert counts.found.tolist() == [1]


def test_average_precision_by_iou():
    """A box that overlaps the true one by 0.7 is right at IoU 0.50 to 0.70 (5 of 10 steps), and wrong above."""
    true = [truth((0, 0, 10, 10, 0))]
    precisions = average_precisions(true, [boxes((0, 0, 10, 7.2, 0.9, 0))], 1, 100)
    assert precisions.at_50.tolist() == [1.0]
    assert precisions.at_50_95.tolist() == [pytest.approx(0.5)]


def test_a_class_without_true_boxes_has_no_number_and_does_not_change_the_mean():
    true = [truth((*TRUE_BOX, 0), (*ELSEWHERE, 2))]
    precisions = average_precisions(true, [boxes((*TRUE_BOX, 0.9, 0), (*ELSEWHERE, 0.8, 1))], 3, 100)
    assert [None if np.isnan(value) else value for value in precisions.at_50] == [1.0, None, 0.0]
    assert precisions.means == (0.5, 0.5)


def test_nothing_found_and_nothing_true():
    assert average_precisions([truth((*TRUE_BOX, 0))], [boxes()], 1, 100).means == (0.0, 0.0)
    assert average_precisions([truth()], [boxes((*TRUE_BOX, 0.9, 0))], 1, 100).means == (None, None)


def test_a_sealed_bundle_is_measured_through_the_detector(tmp_path: Path):
    bundle = make_bundle(tmp_path / "bundles", threshold=0.25)
    true = [
        patch_picture(tmp_path, "red.png", (64, 64), ((0, 0, 32, 32), RED, 0)),
        patch_picture(tmp_path, "wide.png", (128, 64), ((64, 0, 128, 64), GREEN, 1)),
        patch_picture(tmp_path, "good.png", (64, 64)),
    ]
    found = evaluate(bundle, true, ("red", "green", "blue"), Split.TEST, EVALUATE)
    result, outcomes = found.result, found.outcomes
    assert result.digest == open_bundle(bundle).digest
    assert (result.engine, result.precision, result.pictures) == ("cpu", "fp32", 3)
    assert [one.instances for one in result.classes] == [1, 1, 0]
    missing = result.classes[2]
    assert (missing.name, missing.ap50, missing.escape_rate, missing.threshold) == ("blue", None, None, None)
    assert (result.good_pictures, result.overkill_pictures, result.overkill_rate) == (1, 0, 0.0)
    assert [one.picture for one in outcomes] == ["red.png", "wide.png", "good.png"]
    assert outcomes[2].verdict is Verdict.OK

    written = write_result(found, tmp_path / "out")
    assert EvaluationResult.model_validate_json(written.read_text()) == result
    stored = load_scores(tmp_path / "out" / SCORES_FILE)
    assert (len(stored.true_found), stored.true_found.sum()) == (2, sum(one.found for one in result.classes))
    lines = (tmp_path / "out" / PICTURES_FILE).read_text().splitlines()
    assert [json.loads(line)["picture"] for line in lines] == ["red.png", "wide.png", "good.png"]


def test_classes_are_matched_by_name(tmp_path: Path):
    """The bundle's class 0 is called crimson, which is class 1 of this dataset; its class 1 is unknown here."""
    bundle = make_bundle(tmp_path / "bundles", class_names=("crimson", "lime"))
    true = [patch_picture(tmp_path, "red.png", (64, 64), ((0, 0, 32, 32), RED, 1))]
    result = evaluate(bundle, true, ("other", "crimson"), Split.TEST, EVALUATE).result
    direct = evaluate(
        make_bundle(tmp_path / "same", class_names=("other", "crimson"), first_colour=2),
        true,
        ("other", "crimson"),
        Split.TEST,
        EVALUATE,
    ).result
    other, crimson = result.classes
    assert other.threshold is None
    assert crimson.instances == 1
    assert crimson.threshold == 0.25
    assert direct.classes[0].threshold == 0.25


def test_an_empty_split_is_refused_by_name(tmp_path: Path):
    with pytest.raises(DatasetError, match="test split: expected pictures"):
        evaluate(make_bundle(tmp_path), [], ("red",), Split.TEST, EVALUATE)


def test_pictures_are_counted_by_what_the_line_would_see():
    rule = VerdictRule(kind="any_box_over_threshold", thresholds=(0.5, 0.5), chosen_on="a test")
    true = [truth((*TRUE_BOX, 0)), truth((*TRUE_BOX, 0)), truth(), truth()]
    found = [boxes((*TRUE_BOX, 0.9, 0)), boxes((*TRUE_BOX, 0.4, 0)), boxes((*TRUE_BOX, 0.9, 1)), boxes()]
    counts, _ = measure(true, found, rule, ["pit", "stain"], ["pit", "stain"], EVALUATE)
    assert picture_counts(counts.outcomes) == {
        "pictures": 4,
        "defect_pictures": 2,
        "escaped_pictures": 1,
        "good_pictures": 2,
        "overkill_pictures": 1,
        "overkill_rate": 0.5,
        "false_alarms_per_picture": 0.25,
    }


def test_the_hash_of_the_pictures_changes_with_pictures_boxes_and_classes(tmp_path: Path):
    def picture(name: str, size: int = 32, class_id: int = 0):
        return patch_picture(tmp_path, name, (64, 64), ((0, 0, size, 32), RED, class_id))

    one, two = picture("a.png"), patch_picture(tmp_path, "b.png", (64, 48))
    same = hash_pictures([one, two], ["red"])
    assert hash_pictures([two, one], ["red"]) == same
    assert len({same, hash_pictures([one], ["red"]), hash_pictures([one, two], ["rot"])}) == 3
    assert hash_pictures([picture("c.png", class_id=1), two], ["red"]) != same
    assert hash_pictures([picture("d.png", size=31), two], ["red"]) != same


def test_intervals_hold_their_numbers_and_say_nothing_where_there_is_none():
    true = made_truth(60, len(NAMES))
    names = (*NAMES, "crack")
    result = measured(true, made_detections(true, len(NAMES), 1), "a", names).result
    assert result.intervals is not None
    for name, bounds in (("map50", result.intervals.map50), ("overkill_rate", result.intervals.overkill_rate)):
        assert bounds is not None
        assert bounds.low <= getattr(result, name) <= bounds.high
    for one in result.classes[:-1]:
        assert one.intervals is not None
        assert one.intervals.escape_rate is not None
        assert one.intervals.escape_rate.low <= (one.escape_rate or 0) <= one.intervals.escape_rate.high
    crack = result.classes[-1].intervals
    assert crack is not None
    assert (crack.ap50, crack.escape_rate) == (None, None)


def test_more_pictures_make_narrower_intervals():
    widths = []
    for pictures in (30, 480):
        true = made_truth(pictures, len(NAMES))
        result = measured(true, made_detections(true, len(NAMES), 1), "a").result
        assert result.intervals is not None
        assert result.intervals.map50 is not None
        widths.append(result.intervals.map50.high - result.intervals.map50.low)
    assert widths[1] < widths[0] / 2


def test_overkill_of_a_class_counts_pictures_without_defects():
    rule = VerdictRule(kind="any_box_over_threshold", thresholds=(0.5, 0.5), chosen_on="a test")
    true = [truth((*TRUE_BOX, 0)), truth(), truth()]
    found = [boxes((*ELSEWHERE, 0.9, 1)), boxes((*TRUE_BOX, 0.9, 1), (*ELSEWHERE, 0.8, 1)), boxes()]
    counts, precisions = measure(true, found, rule, ["pit", "stain"], ["pit", "stain"], EVALUATE)
    nothing = ClassIntervals(ap50=None, escape_rate=None, false_alarms_per_picture=None, overkill_rate=None)
    pit, stain = class_results(["pit", "stain"], counts, precisions, {}, [nothing, nothing])
    assert (pit.overkill_rate, stain.overkill_rate) == (0.0, 0.5)
    assert (pit.false_alarms, stain.false_alarms) == (0, 3)


def test_flat_metrics_leave_out_what_has_no_number(tmp_path: Path):
    true = [patch_picture(tmp_path, "red.png", (64, 64), ((0, 0, 32, 32), RED, 0))]
    result = evaluate(make_bundle(tmp_path / "b"), true, ("red", "green"), Split.TEST, EVALUATE).result
    metrics = flat_metrics(result)
    assert metrics["test/map50"] == result.map50
    assert "test/escape_rate/red" in metrics
    assert "test/escape_rate/green" not in metrics
    assert "test/overkill_rate" not in metrics
