"""Average precision counted from stored per-picture results is the library's, also for drawings of the pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data_contracts.detections import Detections
from data_contracts.errors import DatasetError
from made_results import made_pictures
from tasks.evaluation.average_precision import average_precisions
from tasks.evaluation.bootstrap import (
    class_precisions,
    draw_weights,
    drawn_ratio,
    interval,
    mean_of_known,
    with_measured,
)
from tasks.evaluation.picture_scores import FIELDS, OVERLAPS, coco_hits, load_scores, save_scores, score_pictures
from training_fakes import boxes, truth

EVERY_OVERLAP = tuple(range(len(OVERLAPS)))
ALIKE = 1e-9


def precisions(true, found, classes: int, limit: int = 100, overlaps: tuple[int, ...] = (0,)):
    hits = np.zeros(sum(len(one.class_ids) for one in true), np.bool_)
    scores = score_pictures(true, found, classes, limit, hits)
    return class_precisions(scores, np.ones((1, len(true)), np.float32), overlaps)[0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", [100, 3])
def test_it_is_the_library_s_average_precision(seed: int, limit: int):
    true, found = made_pictures(seed, pictures=40, classes=4)
    library = average_precisions(true, found, 4, limit)
    np.testing.assert_allclose(precisions(true, found, 4, limit), library.at_50, rtol=0, atol=ALIKE)
    np.testing.assert_allclose(precisions(true, found, 4, limit, EVERY_OVERLAP), library.at_50_95, rtol=0, atol=ALIKE)


@pytest.mark.parametrize("seed", range(4))
def test_a_drawing_is_what_the_library_counts_over_the_drawn_pictures(seed: int):
    """Drawn pictures as separate ones; equal scores would be ordered otherwise, so none are equal here."""
    true, found = made_pictures(seed, pictures=25, classes=3)
    (drawn,) = draw_weights(25, 1, seed)
    rows = np.repeat(np.arange(25), drawn.astype(int))
    library = average_precisions([true[row] for row in rows], [found[row] for row in rows], 3, 100)
    hits = np.zeros(sum(len(one.class_ids) for one in true), np.bool_)
    own = class_precisions(score_pictures(true, found, 3, 100, hits), drawn[None])[0]
    np.testing.assert_allclose(own, library.at_50, rtol=0, atol=ALIKE)


@pytest.mark.parametrize(
    ("true", "found"),
    [
        pytest.param(truth(), boxes((0, 0, 9, 9, 0.9, 0)), id="no true box"),
        pytest.param(truth((0, 0, 9, 9, 0)), boxes(), id="nothing found"),
        pytest.param(truth((0, 0, 9, 9, 0)), boxes((20, 0, 29, 9, 0.9, 0)), id="only false ones"),
        pytest.param(
            truth((0, 0, 10, 10, 0), (0, 0, 10, 10, 0)),
            boxes((0, 0, 10, 10, 0.9, 0), (0, 0, 10, 9, 0.8, 0)),
            id="twins",
        ),
        pytest.param(truth((0, 0, 10, 10, 0)), boxes((0, 0, 10, 8, 0.5, 0), (0, 0, 10, 10, 0.5, 0)), id="equal scores"),
    ],
)
def test_the_odd_cases_are_the_library_s_too(true, found):
    library = average_precisions([true], [found], 1, 100)
    np.testing.assert_allclose(precisions([true], [found], 1), library.at_50, rtol=0, atol=ALIKE)
    np.testing.assert_allclose(precisions([true], [found], 1, 100, EVERY_OVERLAP), library.at_50_95, atol=ALIKE)


def test_each_overlap_has_its_bit():
    """A box that overlaps the true one by 0.72 is a true one at 0.50 to 0.70, five of ten."""
    found, true = np.array([[0, 0, 10, 7.2]], np.float32), np.array([[0, 0, 10, 10]], np.float32)
    assert coco_hits(found, true).tolist() == [0b11111]


def test_drawings_have_as_many_pictures_as_the_split_and_repeat_with_the_seed():
    weights = draw_weights(30, 50, 7)
    assert (weights.sum(axis=1) == 30).all()
    assert (weights == draw_weights(30, 50, 7)).all()
    assert (weights != draw_weights(30, 50, 8)).any()


def test_a_class_that_a_drawing_lacks_is_left_out_of_its_mean():
    by_class = np.array([[0.5, np.nan], [0.4, 0.8], [np.nan, np.nan]])
    np.testing.assert_allclose(mean_of_known(by_class), [0.5, 0.6, np.nan])


def test_an_interval_needs_numbers_in_nine_of_ten_drawings():
    drawn = np.arange(100.0)
    found = interval(np.array([49.5, *drawn]), 0.9)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(4.95), pytest.approx(94.05))
    assert interval(np.array([49.5, *np.where(drawn < 10, np.nan, drawn)]), 0.9) is not None
    assert interval(np.array([49.5, *np.where(drawn < 11, np.nan, drawn)]), 0.9) is None
    assert interval(np.array([np.nan, *drawn]), 0.9) is None
    assert interval(np.array([0.5]), 0.9) is None


def test_an_interval_holds_the_true_value_as_often_as_it_says():
    """300 splits of 60 pictures with one box each, which is missed with a chance of 0.3."""
    chance = np.random.default_rng(0)
    held = 0
    for seed in range(300):
        missed = chance.random(60) < 0.3
        found = interval(drawn_ratio(missed, np.ones(60), with_measured(draw_weights(60, 400, seed))), 0.9)
        assert found is not None
        held += found.low <= 0.3 <= found.high
    assert held / 300 == pytest.approx(0.9, abs=0.05)


def test_drawings_that_lie_too_high_move_the_interval_down():
    """Average precision of a drawing is too high as a rule: nine of ten of these lie over the measured number."""
    drawn = np.linspace(0.49, 0.59, 1001)
    found = interval(np.array([0.50, *drawn]), 0.9)
    assert found is not None
    assert found.low < 0.4901
    assert found.low < 0.50 < found.high < 0.52


def test_results_come_back_from_their_file(tmp_path: Path):
    true, found = made_pictures(1, pictures=10, classes=2)
    hits = np.arange(sum(len(one.class_ids) for one in true)) % 2 == 0
    scores = score_pictures(true, found, 2, 100, hits)
    save_scores(scores, tmp_path / "scores.npz")
    stored = load_scores(tmp_path / "scores.npz")
    for name in FIELDS:
        assert getattr(stored, name).dtype == getattr(scores, name).dtype
        assert getattr(stored, name).tolist() == getattr(scores, name).tolist()
    assert [file.name for file in tmp_path.iterdir()] == ["scores.npz"]


@pytest.mark.parametrize("content", [None, b"", b"no archive", "cut"], ids=["missing", "empty", "other", "cut"])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes | str | None):
    file = tmp_path / "scores.npz"
    true, found = made_pictures(1, pictures=10, classes=2)
    if content == "cut":
        save_scores(score_pictures(true, found, 2, 100, np.zeros(0, np.bool_)), file)
        file.write_bytes(file.read_bytes()[:-200])
    elif isinstance(content, bytes):
        file.write_bytes(content)
    with pytest.raises(DatasetError, match=r"scores\.npz: expected per-picture results.*Evaluate the bundle again"):
        load_scores(file)


def test_boxes_are_stored_best_first_and_equal_ones_in_the_order_of_the_pictures():
    true = [truth((0, 0, 9, 9, 0), picture="a.png"), truth((0, 0, 9, 9, 0), picture="b.png")]
    found: list[Detections] = [boxes((0, 0, 9, 9, 0.5, 0)), boxes((0, 0, 9, 9, 0.7, 0), (30, 0, 39, 9, 0.5, 0))]
    scores = score_pictures(true, found, 1, 100, np.zeros(2, np.bool_))
    assert (scores.picture.tolist(), (scores.hits > 0).tolist()) == ([1, 0, 1], [True, True, False])
