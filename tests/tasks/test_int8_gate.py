"""What speaks against a quantised model, on answers that are written out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from data_contracts.bundle import ProbeLimit, Tolerance, VerdictRule
from data_contracts.detections import Detections
from quantise_fakes import config
from serving.probe import ProbeRule
from tasks.evaluate import measure
from tasks.quantising.int8_gate import Draft, class_results, objections
from training_fakes import EVALUATE, Row, boxes, truth

NAMES = ("scratch", "pit")
RULE = ProbeRule(
    VerdictRule(kind="any_box_over_threshold", thresholds=(0.5, 0.5), chosen_on="a test"),
    Tolerance(box_px=4.0, score=0.15),
    ProbeLimit(max_flip_share=0.05, min_box_share=0.9),
)
GOOD = 10
TRUTH = [truth((0, 0, 20, 20, number % 2), picture=f"{number}") for number in range(40)]
TRUTH += [truth(picture=f"good{number}") for number in range(GOOD)]


def box(number: int, score: float = 0.8, shift: float = 0.0, class_id: int | None = None) -> Row:
    return (shift, 0, 20 + shift, 20, score, number % 2 if class_id is None else class_id)


RIGHT = [boxes(box(number)) for number in range(40)] + [boxes()] * GOOD


def changed(pictures: Sequence[int], *rows: Row) -> list[Detections]:
    """All right, but for these pictures, in which `rows` are found."""
    return [boxes(*rows) if number in pictures else one for number, one in enumerate(RIGHT)]


def scored(score: float) -> list[Detections]:
    """All right, with this score."""
    return [boxes(box(number, score)) for number in range(40)] + [boxes()] * GOOD


def draft(found: Sequence[Detections]) -> Draft:
    return Draft(tuple(found), *measure(TRUTH, found, RULE.verdict, NAMES, NAMES, EVALUATE))


def against(found: Sequence[Detections], fp32: Sequence[Detections] = RIGHT, **limits: float) -> str:
    first, second = draft(fp32), draft(found)
    return "; ".join(objections(first, second, class_results(first, second, NAMES), RULE, config(**limits)))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(RIGHT, "", id="the same"),
        pytest.param(scored(0.7), "", id="all scores a little lower"),
        pytest.param(changed([0], box(0, 0.45)), "", id="one box below its threshold"),
        pytest.param(
            changed(range(0, 12, 2), box(0, 0.45)), "scratch: finds 14 of 20 true boxes, FP32 20",
            id="a class found less",
        ),
        pytest.param(changed([1, 3, 5], box(1, 0.45)), "3 of 50 verdicts flip, allowed are 2", id="verdicts"),
        pytest.param(
            changed(range(40, 43), box(0, 0.9)), "3 of 50 verdicts flip, allowed are 2", id="false alarms flip them too"
        ),
        pytest.param(
            changed(range(0, 12, 2), box(0, 0.8, 5.0)), "12 of 40 boxes differ beyond the tolerance, allowed are 4",
            id="boxes moved",
        ),
        pytest.param(
            changed(range(0, 12, 2)), "scratch: AP50 1.000 becomes 0.693, more than 2 points lower",
            id="precision of one class",
        ),
        pytest.param(changed([0, 1]), "mAP50 1.000 becomes 0.941, more than 0.5 points lower", id="precision of all"),
        pytest.param(
            changed(range(40), box(0, 0.8, 5.0, 0), box(1, 0.8, 5.0, 1)), "AP50-95", id="boxes worse, still found"
        ),
        pytest.param(
            [boxes()] * 50, "the best scores of the pictures shrink: from 0.000 to 0.000, in FP32 from 0.000 to 0.800",
            id="no score left",
        ),
        pytest.param(
            scored(0.3), "the best scores of the pictures shrink: from 0.000 to 0.300",
            id="scores shrunk, their order kept",
        ),
    ],
)  # fmt: skip
def test_what_speaks_against_it(found: Sequence[Detections], expected: str):
    words = against(found)
    assert expected in words if expected else words == ""


def test_a_class_may_lose_as_much_as_the_job_allows():
    found = changed(range(0, 12, 2))
    assert "scratch: AP50 " in against(found, max_loss=20.0, max_mean_loss=100.0)
    assert "scratch" not in against(found, max_loss=40.0, max_mean_loss=100.0)
    assert "mAP50 " in against(found, max_loss=40.0, max_mean_loss=10.0)


def test_better_than_fp32_is_no_objection():
    assert against(RIGHT, fp32=changed([0])) == ""


def test_a_number_that_is_missing_is_one():
    first = draft(RIGHT)
    second = Draft(first.found, first.counts, type(first.precisions)(np.full(2, np.nan), np.full(2, np.nan)))
    words = objections(first, second, class_results(first, second, NAMES), RULE, config())
    assert "scratch: AP50 cannot be measured" in words
    assert "mAP50-95 cannot be measured" in words


def test_a_class_without_true_boxes_is_no_objection():
    first = draft(RIGHT)
    (one, other) = class_results(first, first, NAMES)
    nothing = other.model_copy(update={"instances": 0, "ap50": (None, None), "ap50_95": (None, None), "found": (0, 0)})
    assert objections(first, first, (one, nothing), RULE, config()) == ()
