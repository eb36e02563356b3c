from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from tasks.thresholds import (
    ClassScores,
    ThresholdConfig,
    best_f1_threshold,
    class_threshold,
    collect_scores,
    escape_threshold,
    verdict_rule,
)
from training_fakes import boxes, truth

CONFIG = ThresholdConfig(iou=0.5, lowest=0.1, highest=0.9, max_escape_rate=0.5, fallback=0.5)


def scores(pairs: list[tuple[float, bool]], instances: int) -> ClassScores:
    return ClassScores(
        np.array([score for score, _ in pairs], np.float32), np.array([true for _, true in pairs], np.bool_), instances
    )


@pytest.mark.parametrize(
    ("pairs", "instances", "expected"),
    [
        pytest.param([(0.9, True), (0.6, True), (0.4, False)], 3, 0.5, id="worked example"),
        pytest.param([(0.4, False), (0.9, True), (0.6, True)], 3, 0.5, id="in any order"),
        pytest.param([(0.8, True), (0.6, True)], 2, 0.35, id="nothing after the last: halfway to the lowest"),
        pytest.param([(0.99, True), (0.98, False)], 1, 0.9, id="not above the highest"),
        pytest.param([(0.11, True)], 1, 0.105, id="low scores"),
        pytest.param([(0.8, True), (0.6, False), (0.5, True)], 2, 0.3, id="a false alarm is worth a found defect"),
        pytest.param([(0.8, True), (0.5, True), (0.5, False)], 2, 0.3, id="equal scores stay together"),
        pytest.param([(0.8, False)], 4, None, id="no true box found"),
        pytest.param([], 4, None, id="nothing found"),
    ],
)
def test_highest_f1(pairs, instances, expected):
    found = best_f1_threshold(scores(pairs, instances), CONFIG)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-6))


@pytest.mark.parametrize(
    ("pairs", "instances", "expected"),
    [
        pytest.param([(0.9, True), (0.6, False), (0.5, True), (0.4, True)], 4, 0.45, id="worked example"),
        pytest.param([(0.9, True), (0.5, False), (0.5, True), (0.5, True)], 4, 0.3, id="equal scores stay together"),
        pytest.param([(0.9, True), (0.8, True)], 4, 0.45, id="nothing after the last: halfway to the lowest"),
        pytest.param([(0.9, True), (0.8, False)], 4, None, id="the limit can not be reached"),
        pytest.param([(0.9, False)], 0, None, id="no true boxes"),
    ],
)
def test_the_highest_threshold_within_the_escape_limit(pairs, instances, expected):
    found = escape_threshold(scores(pairs, instances), CONFIG)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-6))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        pytest.param(0.5, 0.5, id="the highest F1 is within the limit"),
        pytest.param(0.1, 0.15, id="lower where it is not"),
        pytest.param(0.0, 0.5, id="the highest F1 where the limit can not be reached"),
    ],
)
def test_the_escape_limit_lowers_a_threshold(limit: float, expected: float):
    """Highest F1 holds 0.9 to 0.7, eight of eleven; the limit of 0.1 asks for ten of them, the last at 0.2."""
    pairs = [(0.9, True)] * 7 + [(0.7, True)] + [(0.3, False)] * 9 + [(0.25, True), (0.2, True), (0.1, False)]
    config = CONFIG.model_copy(update={"max_escape_rate": limit})
    assert class_threshold(scores(pairs, 11), config) == pytest.approx(expected, abs=1e-6)


def test_a_limit_that_can_not_be_reached_is_told():
    config = CONFIG.model_copy(update={"max_escape_rate": 0.1})
    rule = verdict_rule([scores([(0.8, True)], 2), scores([(0.8, True)], 1)], ("scratch", "pit"), config)
    assert rule.chosen_on.endswith("more escapes at any threshold: scratch")


def test_of_equally_good_thresholds_the_lowest_misses_least():
    """Four true boxes: F1 is 2/(1 + 4) ... 4/(2 + 4) after the second box and 6/(5 + 4), the same, after the fifth."""
    pairs = [(0.9, True), (0.8, True), (0.7, False), (0.6, False), (0.5, True)]
    assert best_f1_threshold(scores(pairs, 4), CONFIG) == pytest.approx((0.5 + 0.1) / 2)


def test_scores_are_collected_by_class_over_all_pictures():
    found = [boxes((0, 0, 10, 10, 0.9, 0), (50, 50, 60, 60, 0.8, 1)), boxes((0, 0, 10, 10, 0.7, 0)), boxes()]
    true = [truth((0, 0, 10, 10, 0)), truth((0, 0, 10, 10, 1)), truth((5, 5, 9, 9, 2))]
    first, second, third = collect_scores(found, true, 3, 0.5)
    assert (first.scores.tolist(), first.is_true.tolist(), first.instances) == (
        pytest.approx([0.9, 0.7]),
        [True, False],
        1,
    )
    assert (second.is_true.tolist(), second.instances) == ([False], 1)
    assert (len(third.scores), third.instances) == (0, 1)


def test_the_rule_names_the_classes_that_got_the_fallback():
    rule = verdict_rule([scores([(0.8, True)], 1), scores([], 0)], ("scratch", "pit"), CONFIG)
    assert rule.thresholds == (pytest.approx(0.45), 0.5)
    assert "0.5 where no true box was found: pit" in rule.chosen_on
    assert "scratch" not in rule.chosen_on


@pytest.mark.parametrize("bounds", [(0.6, 0.9, 0.5), (0.1, 0.4, 0.5)])
def test_the_fallback_lies_between_the_bounds(bounds: tuple[float, float, float]):
    lowest, highest, fallback = bounds
    with pytest.raises(ValidationError, match="lowest <= fallback <= highest"):
        ThresholdConfig(iou=0.5, lowest=lowest, highest=highest, max_escape_rate=0.5, fallback=fallback)
