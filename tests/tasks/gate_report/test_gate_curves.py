"""Curves of a class: their area is the average precision, and they pass through the operating point."""

from __future__ import annotations

import numpy as np
import pytest

from made_results import NAMES, THRESHOLD, made_pictures, measured
from tasks.gate_report.gate_charts import Line, curve_svg, difference_svg, range_svg
from tasks.gate_report.gate_curves import THRESHOLDS, class_curves

TRUE, FOUND = made_pictures(seed=3, pictures=40, classes=len(NAMES))
MEASURED = measured(TRUE, FOUND, "c")


@pytest.mark.parametrize("class_id", range(len(NAMES)))
def test_the_area_under_precision_over_recall_is_the_measured_average_precision(class_id: int):
    curves = class_curves(MEASURED.scores, class_id)
    assert curves is not None
    assert curves.precision.mean() == pytest.approx(MEASURED.result.classes[class_id].ap50, abs=1e-9)


@pytest.mark.parametrize("class_id", range(len(NAMES)))
def test_f1_at_the_threshold_is_that_of_the_operating_point(class_id: int):
    curves, result = class_curves(MEASURED.scores, class_id), MEASURED.result.classes[class_id]
    assert curves is not None
    boxes = result.found + result.false_alarms
    expected = 2 * result.found / (boxes + result.instances)
    assert curves.f1[np.flatnonzero(np.isclose(THRESHOLDS, THRESHOLD))[0]] == pytest.approx(expected, abs=1e-9)


def test_a_class_without_true_boxes_has_no_curves():
    true, found = made_pictures(seed=0, pictures=8, classes=2)
    three = measured(true, found, "c", ("a", "b", "c"), ("a", "b", "c"))
    assert class_curves(three.scores, 2) is None


def test_a_class_of_which_nothing_is_found_lies_at_zero():
    true, found = made_pictures(seed=0, pictures=8, classes=2)
    blind = measured(true, [boxes.where(boxes.class_ids != 1) for boxes in found], "c", ("a", "b"), ("a", "b"))
    curves = class_curves(blind.scores, 1)
    assert curves is not None
    assert (curves.precision.max(), curves.f1.max()) == (0.0, 0.0)


def test_candidate_and_champion_are_told_apart_without_colour():
    """By the classes that the style sheet draws solid and dashed; the champion's dot is hollow."""
    x = [0.0, 0.5, 1.0]
    svg = curve_svg([Line("champion", x, x), Line("candidate", x, x)], "recall", "precision", (0.5, 0.5), "a <b>")
    assert svg.count('class="champion"') == svg.count('class="candidate"') == svg.count('class="point"') == 1
    assert 'aria-label="a &lt;b&gt;"' in svg


def test_flat_parts_of_a_curve_keep_only_their_ends():
    flat = curve_svg([Line("candidate", THRESHOLDS, np.zeros(101))], "x", "y", None, "flat")
    path = flat.split('class="candidate" d="')[1].split('"')[0]
    assert path.count("L") == 1


@pytest.mark.parametrize(
    ("value", "low", "high", "centre"),
    [(0.0, 0.0, 0.5, 6.0), (1.0, 0.5, 1.0, 144.0), (7.0, 0.5, 1.0, 144.0)],
    ids=["at zero", "at the end", "beyond the end"],
)
def test_a_range_stays_within_its_chart(value: float, low: float, high: float, centre: float):
    from tasks.evaluation.evaluation_result import Interval

    svg = range_svg([("candidate", value, Interval(low=low, high=high))], 1.0, "a range")
    assert f'cx="{centre:.1f}"' in svg


@pytest.mark.parametrize("difference", [-0.5, 0.0, 0.02, 0.9])
def test_the_difference_lies_right_of_its_bounds_and_of_the_margin_where_it_should(difference: float):
    svg = difference_svg(difference, [("90 %", difference - 0.01), ("99 %", difference - 0.05)], 0.03, "difference")
    dots = [float(part.split('"')[0]) for part in svg.split('cx="')[1:]]
    ends = [float(part.split(" ")[0]) for part in svg.split('class="candidate" d="M')[1:]]
    assert 8 <= ends[1] < ends[0] < dots[0] == dots[1] <= 452
    zero = float(svg.split('class="zero" d="M')[1].split(" ")[0])
    assert (zero < dots[0]) == (difference > 0)
