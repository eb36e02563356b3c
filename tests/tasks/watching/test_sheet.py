"""Which pictures are drawn, and where their frames lie."""

from __future__ import annotations

import numpy as np
import pytest

from builders import RED, plate
from data_contracts.detections import Detections
from tasks.watching.samples import choose
from tasks.watching.sheet import TILE_PX, Sample, caption, draw_sheet
from training_fakes import boxes

NAMES = ("scratch", "pit")
WHITE = (255, 255, 255)


@pytest.mark.parametrize(
    ("box_counts", "count", "chosen"),
    [
        pytest.param([1] * 10, 4, [0, 2, 5, 7], id="no good ones: spread over the defects"),
        pytest.param([0] * 10, 4, [0, 2, 5, 7], id="no defects"),
        pytest.param([1, 1, 1, 1, 0, 0], 6, [0, 1, 2, 3, 4, 5], id="all of them"),
        pytest.param([1] * 20 + [0] * 20, 6, [0, 5, 10, 15, 20, 30], id="a third good"),
        pytest.param([0] * 30 + [2], 6, [30, 0, 6, 12, 18, 24], id="one defect among many good ones"),
        pytest.param([3] * 5 + [0], 6, [0, 1, 2, 3, 4, 5], id="one good among defects"),
        pytest.param([1, 0], 6, [0, 1], id="fewer than asked for"),
        pytest.param([1, 0], 1, [0], id="one: a defect"),
        pytest.param([], 6, [], id="none at all"),
    ],
)
def test_choice(box_counts: list[int], count: int, chosen: list[int]) -> None:
    assert choose(box_counts, count) == chosen


def sample(
    wh: tuple[int, int], true_box: tuple[int, int, int, int] | None = None, found: Detections | None = None
) -> Sample:
    true_boxes = [] if true_box is None else [true_box]
    found = Detections.empty() if found is None else found
    return Sample("a.png", plate(wh, background=(60, 60, 60)), true_boxes, [0] * len(true_boxes), found)


@pytest.mark.parametrize(
    ("wh", "place"),
    [
        pytest.param((320, 320), (40, 80, 160, 240), id="as large as its tile"),
        pytest.param((640, 640), (80, 160, 320, 480), id="larger"),
        pytest.param((32, 32), (4, 8, 16, 24), id="smaller"),
        pytest.param((320, 160), (40, 0, 160, 160), id="flat: in the middle of its tile"),
    ],
)
def test_labels_lie_where_they_were_labelled(wh: tuple[int, int], place: tuple[int, int, int, int]) -> None:
    """In each case the frame's left side is 40 pixels and its right side 160 pixels from the tile's left edge."""
    sheet = draw_sheet([sample(wh, place)], NAMES)
    tile = sheet[-TILE_PX:]
    white = np.argwhere((tile == WHITE).all(axis=2))
    assert white[:, 1].min() == pytest.approx(40, abs=1)
    assert white[:, 1].max() == pytest.approx(160, abs=1)
    assert (white[:, 0].min() + white[:, 0].max()) / 2 == pytest.approx(160, abs=1)


def test_what_is_found_is_drawn_over_it() -> None:
    plain, drawn = (draw_sheet([sample((320, 320), None, found)], NAMES) for found in (
        None, boxes((40, 80, 160, 240, 0.9, 1))
    ))  # fmt: skip
    assert plain.shape == drawn.shape
    changed = np.argwhere((plain[-TILE_PX:] != drawn[-TILE_PX:]).any(axis=2))
    assert changed[:, 1].min() == pytest.approx(40, abs=6)
    assert changed[:, 0].max() == pytest.approx(240, abs=6)


def test_boxes_beyond_the_picture_are_kept_within_the_tile() -> None:
    sheet = draw_sheet([sample((64, 64), None, boxes((-5, -9, 90, 80, 0.9, 0)))], NAMES)
    assert sheet.shape[1] == TILE_PX


@pytest.mark.parametrize(("count", "columns", "rows"), [(1, 1, 1), (2, 2, 1), (3, 2, 2), (6, 2, 3)])
def test_two_in_a_row(count: int, columns: int, rows: int) -> None:
    one = draw_sheet([sample((64, 64))], NAMES)
    sheet = draw_sheet([sample((64, 64))] * count, NAMES)
    assert sheet.shape[1] == columns * TILE_PX + (columns - 1) * 8
    assert sheet.shape[0] == rows * len(one) + (rows - 1) * 8


@pytest.mark.parametrize(
    ("name", "ids", "names", "words"),
    [
        pytest.param("a.png", [], NAMES, "a.png: no label", id="good"),
        pytest.param("a.png", [1, 0, 1], NAMES, "a.png: 2 pit, 1 scratch", id="counted"),
        pytest.param("a.png", [0], ("\U0001f600", "pit"), "a.png: 1 class 0", id="a class the font lacks"),
        pytest.param("\U0001f600.png", [1], NAMES, "a picture: 1 pit", id="a name the font lacks"),
    ],
)
def test_caption(name: str, ids: list[int], names: tuple[str, ...], words: str) -> None:
    one = Sample(name, plate((8, 8), ((0, 0, 1, 1), RED)), [], ids, Detections.empty())
    assert caption(one, names) == words
