from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from data_contracts.detections import Detection, Detections

NAMES = ("scratch", "pit")


def some() -> Detections:
    return Detections(
        np.array([[0, 0, 10, 10], [5, 5, 20, 30]], np.float32),
        np.array([0.75, 0.5], np.float32),
        np.array([1, 0], np.int64),
    )


def test_records_and_back():
    records = some().records(NAMES)
    assert [record.class_name for record in records] == ["pit", "scratch"]
    again = Detections.from_records(records)
    np.testing.assert_array_equal(again.boxes_xyxy_px, some().boxes_xyxy_px)
    np.testing.assert_array_equal(again.scores, some().scores)
    np.testing.assert_array_equal(again.class_ids, some().class_ids)


def test_a_score_equal_to_its_threshold_reaches_it():
    over = some().over(np.array([0.5, 0.8], np.float32))
    assert over.class_ids.tolist() == [0]


def test_empty_has_no_records():
    assert Detections.empty().records(NAMES) == ()
    assert len(Detections.from_records(())) == 0


@pytest.mark.parametrize(
    ("boxes", "scores", "ids"), [((2, 4), 3, 3), ((3, 4), 3, 2), ((3, 5), 3, 3)], ids=["boxes", "ids", "columns"]
)
def test_arrays_that_do_not_belong_together_are_refused(boxes, scores, ids):
    with pytest.raises(ValueError, match="do not belong together"):
        Detections(np.zeros(boxes, np.float32), np.zeros(scores, np.float32), np.zeros(ids, np.int64))


@pytest.mark.parametrize(
    "change",
    [{"score": 1.5}, {"score": float("nan")}, {"box_xyxy_px": (0, 0, float("inf"), 1)}, {"class_id": -1}, {"extra": 1}],
    ids=["score", "nan", "infinite box", "class", "unknown field"],
)
def test_impossible_records_are_refused(change):
    fields = {"class_id": 0, "class_name": "pit", "score": 0.5, "box_xyxy_px": (0, 0, 1, 1)}
    with pytest.raises(ValidationError):
        Detection(**(fields | change))
