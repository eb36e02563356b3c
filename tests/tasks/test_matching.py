from __future__ import annotations

import numpy as np
import pytest

from tasks.evaluation.matching import match_boxes, pairwise_iou
from training_fakes import Row, boxes

TWO_TRUE = np.array([[0, 0, 10, 10], [20, 0, 30, 10]], np.float32)


def test_overlap_of_touching_equal_and_empty_boxes():
    first = np.array([[0, 0, 10, 10], [5, 5, 5, 5]], np.float32)
    second = np.array([[0, 0, 10, 10], [10, 0, 20, 10], [0, 0, 10, 5]], np.float32)
    assert pairwise_iou(first, second).tolist() == [[1.0, 0.0, 0.5], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([(0, 0, 10, 10, 0.9, 0), (20, 0, 30, 10, 0.8, 1)], [0, 1], id="both found"),
        pytest.param([(0, 0, 10, 10, 0.9, 1)], [-1], id="right place, wrong class"),
        pytest.param([(0, 0, 10, 10, 0.3, 0), (0, 0, 10, 9, 0.9, 0)], [-1, 0], id="the better score takes the box"),
        pytest.param([(0, 0, 10, 4.9, 0.9, 0)], [-1], id="too little overlap"),
        pytest.param([(0, 0, 10, 5, 0.9, 0)], [0], id="just enough overlap"),
        pytest.param([], [], id="nothing found"),
    ],
)
def test_matching(rows: list[Row], expected: list[int]):
    assert match_boxes(boxes(*rows), TWO_TRUE, np.array([0, 1]), 0.5).tolist() == expected


def test_a_picture_without_defects_matches_nothing():
    assert match_boxes(boxes((0, 0, 1, 1, 0.9, 0)), np.zeros((0, 4)), np.zeros(0, np.int64), 0.5).tolist() == [-1]


def test_matches_over_a_threshold_do_not_depend_on_the_boxes_below_it():
    rng = np.random.default_rng(3)
    corners = rng.uniform(0, 60, (40, 2))
    found = boxes(
        *(((*corner, *(corner + rng.uniform(8, 30, 2)), rng.uniform(), i % 2)) for i, corner in enumerate(corners))
    )
    true = np.hstack([corners[:10], corners[:10] + 15]).astype(np.float32)
    ids = np.arange(10) % 2
    all_of_them = match_boxes(found, true, ids, 0.3)
    for threshold in (0.2, 0.5, 0.8):
        over = found.scores >= threshold
        assert match_boxes(found.where(over), true, ids, 0.3).tolist() == all_of_them[over].tolist()
