from __future__ import annotations

import numpy as np
import pytest

from builders import model_spec
from data_contracts.bundle import NmsSettings
from data_contracts.detections import Detections
from data_contracts.errors import EngineError
from data_contracts.letterbox import ULTRALYTICS_LETTERBOX, fit_letterbox
from serving import postprocess
from serving.postprocess import boxes_of, suppress

PLACE = fit_letterbox((128, 64), (64, 64), ULTRALYTICS_LETTERBOX)
"""Scale 0.5, 16 rows of padding above."""
NMS = NmsSettings(iou=0.5, max_candidates=1000, max_detections=300)


def raw(*anchors: tuple[float, ...]) -> np.ndarray:
    """Raw output from one tuple per anchor: centre x, centre y, width, height, score per class."""
    return np.array(anchors, np.float32).T


def boxes(*rows: tuple[float, ...]) -> Detections:
    """Candidates from (left, top, right, bottom, score, class)."""
    table = np.array(rows, np.float32).reshape(-1, 6)
    return Detections(table[:, :4], table[:, 4], table[:, 5].astype(np.int64))


def test_a_box_comes_back_to_the_picture():
    found = boxes_of(raw((32, 32, 16, 8, 0.9, 0.1)), model_spec(), PLACE, 0.25)
    assert found.boxes_xyxy_px.tolist() == [[48, 24, 80, 40]]
    assert found.class_ids.tolist() == [0]
    assert found.scores.tolist() == pytest.approx([0.9])


def test_the_best_class_of_an_anchor_counts_alone():
    found = boxes_of(raw((32, 32, 16, 8, 0.6, 0.7)), model_spec(), PLACE, 0.25)
    assert found.class_ids.tolist() == [1]


def test_a_score_equal_to_the_floor_counts():
    output = raw((32, 32, 16, 8, 0.3, 0), (10, 32, 4, 4, 0.29, 0))
    assert boxes_of(output, model_spec(), PLACE, 0.3).scores.tolist() == pytest.approx([0.3])


def test_nothing_over_the_floor():
    assert len(boxes_of(raw((32, 32, 16, 8, 0.1, 0.1)), model_spec(), PLACE, 0.25)) == 0


# 10x10 boxes; moved by 3 of 10 pixels the overlap is 70 / 130 = 0.538, by 4 it is 60 / 140 = 0.429.
SUPPRESSED = {
    "over the threshold": (boxes((0, 0, 10, 10, 0.9, 0), (3, 0, 13, 10, 0.8, 0)), [0.9]),
    "under the threshold": (boxes((0, 0, 10, 10, 0.9, 0), (4, 0, 14, 10, 0.8, 0)), [0.9, 0.8]),
    "exactly at the threshold stays": (boxes((0, 0, 10, 10, 0.9, 0), (0, 0, 10, 5, 0.8, 0)), [0.9, 0.8]),
    "another class stays": (boxes((0, 0, 10, 10, 0.9, 0), (3, 0, 13, 10, 0.8, 1)), [0.9, 0.8]),
    "a dropped box drops nobody": (
        boxes((0, 0, 10, 10, 0.9, 0), (3, 0, 13, 10, 0.8, 0), (6, 0, 16, 10, 0.7, 0)), [0.9, 0.7]),
    "best first, whatever the order": (boxes((3, 0, 13, 10, 0.8, 0), (0, 0, 10, 10, 0.9, 0)), [0.9]),
    "no area": (boxes((5, 5, 5, 5, 0.9, 0), (5, 5, 5, 5, 0.8, 0)), [0.9, 0.8]),
    "none": (boxes(), []),
}  # fmt: skip


@pytest.mark.parametrize(("candidates", "scores"), SUPPRESSED.values(), ids=SUPPRESSED)
def test_suppression(candidates, scores):
    assert suppress(candidates, NMS).scores.tolist() == pytest.approx(scores)


def test_candidates_and_detections_are_capped_best_first():
    apart = boxes(*((20 * n, 0, 20 * n + 10, 10, 0.1 + n / 100, 0) for n in range(50)))
    best = [0.59, 0.58, 0.57]
    capped = NmsSettings(iou=0.5, max_candidates=3, max_detections=300)
    assert suppress(apart, capped).scores.tolist() == pytest.approx(best)
    limited = NmsSettings(iou=0.5, max_candidates=1000, max_detections=3)
    assert suppress(apart, limited).scores.tolist() == pytest.approx(best)


def simple_nms(candidates: Detections, iou: float) -> list[float]:
    """The definition, one pair at a time, in double precision and without the class offset."""
    kept: list[int] = []
    for index in np.argsort(-candidates.scores, kind="stable"):
        if all(_iou(candidates, int(index), other) <= iou for other in kept):
            kept.append(int(index))
    return [float(candidates.scores[index]) for index in kept]


def _iou(table: Detections, one: int, other: int) -> float:
    if table.class_ids[one] != table.class_ids[other]:
        return 0.0
    a, b = (table.boxes_xyxy_px[index].astype(float) for index in (one, other))
    width, height = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - width * height
    return float(width * height / union)


@pytest.mark.parametrize("block", [1, 16, 1000])
@pytest.mark.parametrize("seed", range(2))
def test_suppression_equals_its_definition(monkeypatch, seed, block):
    monkeypatch.setattr(postprocess, "BLOCK", block)
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 100, (120, 2))
    corners = np.hstack([corner, corner + rng.uniform(5, 60, (120, 2))]).astype(np.float32)
    table = Detections(corners, rng.random(120).astype(np.float32), rng.integers(0, 3, 120))
    assert suppress(table, NMS).scores.tolist() == simple_nms(table, NMS.iou)


def test_end_to_end_output_is_not_suppressed_again():
    spec = model_spec(layout="end_to_end", nms=NmsSettings(iou=0.5, max_candidates=10, max_detections=2))
    output = np.array(
        [[0, 16, 10, 26, 0.6, 1], [0, 16, 10, 26, 0.7, 1], [0, 16, 10, 26, 0.5, 0], [0, 0, 0, 0, 0.01, 0]], np.float32
    )
    found = boxes_of(output, spec, PLACE, 0.25)
    assert found.scores.tolist() == pytest.approx([0.7, 0.6])
    assert found.class_ids.tolist() == [1, 1]
    assert found.boxes_xyxy_px[0].tolist() == [0, 0, 20, 20]


NAN, INF = float("nan"), float("inf")
IMPOSSIBLE = {
    "score is not a number": ("raw", raw((32, 32, 16, 8, NAN, 0.1)), "a score of nan"),
    "second score is not a number": ("raw", raw((32, 32, 16, 8, 0.9, NAN)), "a score of nan"),
    "unseen score is not a number": ("raw", raw((32, 32, 16, 8, 0.9, 0.1), (9, 9, 1, 1, NAN, 0)), "a score of nan"),
    "minus infinity": ("raw", raw((32, 32, 16, 8, -INF, -INF)), "a score of -inf"),
    "infinity": ("raw", raw((32, 32, 16, 8, INF, 0.1)), "a score of inf"),
    "negative": ("raw", raw((32, 32, 16, 8, -3, -2)), "a score of -2"),
    "score over one": ("raw", raw((32, 32, 16, 8, 7.5, 0.1)), "a score of 7.5"),
    "box is not a number": ("raw", raw((NAN, 32, 16, 8, 0.9, 0.1)), "finite boxes"),
    "infinite box": ("raw", raw((32, 32, INF, 8, 0.9, 0.1)), "finite boxes"),
    "a class too many": ("raw", raw((32, 32, 16, 8, 0.9, 0.1, 0.1)), "6 on axis 0"),
    "a class too few": ("raw", raw((32, 32, 16, 8, 0.9)), "6 on axis 0"),
    "batch axis left": ("raw", raw((32, 32, 16, 8, 0.9, 0.1))[None], "shape"),
    "end to end: score": ("end_to_end", np.array([[0, 0, 9, 9, NAN, 0]], np.float32), "a score of nan"),
    "end to end: minus infinity": ("end_to_end", np.array([[0, 0, 9, 9, -INF, 0]], np.float32), "a score of -inf"),
    "end to end: box": ("end_to_end", np.array([[0, NAN, 9, 9, 0.9, 0]], np.float32), "finite boxes"),
    "end to end: class is not a number": ("end_to_end", np.array([[0, 0, 9, 9, 0.9, NAN]], np.float32), "class ids"),
    "end to end: class id": ("end_to_end", np.array([[0, 0, 9, 9, 0.9, 2]], np.float32), "class ids from 0 to 1"),
    "end to end: columns": ("end_to_end", np.zeros((3, 7), np.float32), "6 on axis 1"),
}


@pytest.mark.parametrize(("layout", "output", "words"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_answers_are_errors_not_empty_lists(layout, output, words):
    with pytest.raises(EngineError, match=words):
        boxes_of(output, model_spec(layout=layout), PLACE, 0.25)


def test_a_hair_over_one_is_one():
    found = boxes_of(raw((32, 32, 16, 8, 1.0004, 0.1)), model_spec(), PLACE, 0.25)
    assert found.scores.tolist() == [1.0]
