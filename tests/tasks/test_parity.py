from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from builders import RED, plate
from tasks.parity import ParityConfig, ParityResult, compare_detections, parity_pictures, tile_to
from training_fakes import Row, boxes, patch_picture

CONFIG = ParityConfig(
    pictures=2, made_up_sizes=((640, 200), (200, 640), (333, 517)), score_floor=0.1, score_margin=0.01, iou=0.99,
    corner_px=0.5, score=0.002, minimum_compared=2,
)  # fmt: skip
BIG: Row = (10, 10, 210, 210, 0.9, 0)
SMALL: Row = (10, 10, 20, 20, 0.8, 1)


def moved(row: Row, by: float = 0.0, score: float = 0.0, class_id: int | None = None) -> Row:
    left, top, right, bottom, was, own = row
    return (left + by, top + by, right + by, bottom + by, was + score, own if class_id is None else class_id)


def compare(reference: list[Row], found: list[Row]) -> ParityResult:
    return compare_detections([boxes(*reference)], [boxes(*found)], ["a.png"], 0.11, CONFIG)


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        pytest.param([BIG, SMALL], True, id="equal"),
        pytest.param([SMALL, BIG], True, id="another order"),
        pytest.param([moved(BIG, 0.49), moved(SMALL, 0.49)], True, id="half a pixel is little even for a small box"),
        pytest.param([moved(BIG, 0.9), SMALL], False, id="a pixel is too much"),
        pytest.param([(10, 10, 211, 210, 0.9, 0), SMALL], True, id="a pixel on one side of a big box keeps the IoU"),
        pytest.param([moved(BIG, score=0.0015), SMALL], True, id="score a little off"),
        pytest.param([moved(BIG, score=-0.003), SMALL], False, id="score too far off"),
        pytest.param([moved(BIG, class_id=1), SMALL], False, id="another class"),
        pytest.param([BIG], False, id="one is missing"),
        pytest.param([BIG, SMALL, moved(SMALL, 100)], False, id="one too many"),
        pytest.param([BIG, SMALL, (0, 0, 9, 9, 0.105, 0)], True, id="one too many, but at the floor"),
        pytest.param([], False, id="nothing found"),
    ],
)
def test_alike_or_not(found: list[Row], holds: bool):
    result = compare([BIG, SMALL], found)
    assert result.holds == holds, result
    assert bool(result.failures) == (not holds)


def test_the_worst_figures_are_reported():
    result = compare([BIG, SMALL], [moved(BIG, 0.25, -0.001), SMALL])
    assert (result.compared, result.pictures) == (4, 1)
    assert result.worst_corner_px == pytest.approx(0.25)
    assert result.worst_score == pytest.approx(0.001, abs=1e-6)
    assert result.worst_iou == pytest.approx(199.75**2 / (2 * 200**2 - 199.75**2), abs=1e-6)


def test_a_failure_names_the_picture_and_the_box():
    (first, *_) = compare([BIG, SMALL], [BIG]).failures
    assert "a.png: the bundle lacks, class 1 at [10.0, 10.0, 20.0, 20.0]" in first


@pytest.mark.parametrize("rows", [[], [(*BIG[:4], 0.05, 0)]])
def test_too_few_boxes_prove_nothing(rows: list[Row]):
    result = compare(rows, rows)
    assert not result.holds
    assert "only 0 boxes over 0.11: at least 2 are needed" in result.failures[0]
    assert (result.worst_iou, result.worst_corner_px, result.worst_score) == (None, None, None)


def test_the_result_survives_json_although_a_partner_is_infinitely_far():
    result = compare([BIG, SMALL], [])
    assert ParityResult.model_validate_json(result.to_json()) == result


@pytest.mark.parametrize("wh", [(640, 200), (200, 640), (333, 517), (10, 7)])
def test_tiling_repeats_from_the_top_left_corner(wh: tuple[int, int]):
    image = plate((64, 48), ((0, 0, 10, 7), RED))
    tiled = tile_to(image, wh)
    assert tiled.shape == (wh[1], wh[0], 3)
    assert np.array_equal(tiled[:7, :10], image[:7, :10])
    if wh[0] > 128:
        assert np.array_equal(tiled[:7, 64:128], image[:7])


def test_pictures_as_they_are_and_of_made_up_sizes(tmp_path: Path):
    files = [patch_picture(tmp_path, f"{number}.png", (64, 48)).picture for number in range(3)]
    pictures = parity_pictures(files, CONFIG)
    assert [name for name, _ in pictures] == [
        "0.png",
        "1.png",
        "0.png as 640x200",
        "1.png as 200x640",
        "0.png as 333x517",
    ]
    assert [image.shape[1::-1] for _, image in pictures[2:]] == [(640, 200), (200, 640), (333, 517)]
