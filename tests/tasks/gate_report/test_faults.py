"""What was taken for what, and the worst misses and false alarms with their words."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
import pytest

from builders import plate
from made_results import NAMES, THRESHOLD, made_pictures, measured
from tasks.gate_report.confusion import confusion_matrix, match_all
from tasks.gate_report.fault_crops import CROP_PX, FOUND_INK, TRUE_INK, fault_crop
from tasks.gate_report.faults import Fault, Judged, worst_faults
from training_fakes import Row, boxes, truth

AB = ("scratch", "pit")
HERE, BESIDE, FAR = (10, 10, 30, 30), (22, 10, 42, 30), (60, 60, 80, 80)


def judged(true_rows: Sequence[tuple], found_rows: Sequence[Row], name: str = "p.png") -> Judged:
    found = boxes(*sorted(found_rows, key=lambda row: -row[4]))
    over = found.where(found.scores >= THRESHOLD)
    return Judged(truth(*true_rows, picture=name), found, over, [THRESHOLD] * 2, AB, 0.5)


def test_the_diagonal_is_what_the_operating_point_counts_and_nothing_is_lost():
    true, found = made_pictures(seed=5, pictures=50, classes=len(NAMES))
    result = measured(true, found, "c").result
    over = [one.where(one.scores >= np.float32(THRESHOLD)) for one in found]
    matrix = confusion_matrix(true, over, len(NAMES), 0.5)
    assert matrix.diagonal()[:-1].tolist() == [one.found for one in result.classes]
    assert matrix[:-1].sum(axis=1).tolist() == [one.instances for one in result.classes]
    assert matrix[:, :-1].sum() == sum(map(len, over))
    off_diagonal = matrix[:, :-1].sum(axis=0) - matrix.diagonal()[:-1]
    assert off_diagonal.tolist() == [one.false_alarms for one in result.classes]


@pytest.mark.parametrize(
    ("found", "matrix"),
    [
        pytest.param([(*HERE, 0.9, 0)], [[1, 0, 0], [0, 0, 0], [0, 0, 0]], id="found"),
        pytest.param([(*HERE, 0.9, 1)], [[0, 1, 0], [0, 0, 0], [0, 0, 0]], id="taken for another class"),
        pytest.param([], [[0, 0, 1], [0, 0, 0], [0, 0, 0]], id="missed"),
        pytest.param([(*FAR, 0.9, 1)], [[0, 0, 1], [0, 0, 0], [0, 1, 0]], id="missed, and a false alarm elsewhere"),
        pytest.param([(*HERE, 0.9, 1), (*HERE, 0.5, 0)], [[1, 0, 0], [0, 0, 0], [0, 1, 0]], id="its class goes first"),
    ],
)
def test_confusion_by_hand(found: list[Row], matrix: list[list[int]]):
    one = judged([(*HERE, 0)], found)
    assert confusion_matrix([one.true], [one.over], 2, 0.5).tolist() == matrix


def test_a_true_box_is_taken_once():
    one = judged([(*HERE, 0)], [(*HERE, 0.9, 1), (*HERE, 0.8, 1)])
    right, wrong = match_all(one.over, one.true, 0.5)
    assert (right.tolist(), wrong.tolist()) == ([-1, -1], [0, -1])


@pytest.mark.parametrize(
    ("found", "words"),
    [
        pytest.param([], "nothing was found here", id="nothing"),
        pytest.param([(*HERE, 0.21, 0)], "found with score 0.21, threshold 0.40", id="under the threshold"),
        pytest.param([(*HERE, 0.21, 0), (*HERE, 0.8, 1)], "taken for pit, score 0.80", id="another class"),
        pytest.param([(*BESIDE, 0.7, 0)], "the box found overlaps it by 0.25 only, score 0.70", id="beside"),
        pytest.param([(*BESIDE, 0.2, 0)], "nothing was found here", id="beside and under the threshold"),
        pytest.param([(*FAR, 0.9, 0)], "nothing was found here", id="far away"),
    ],
)
def test_a_miss_says_what_happened_there(found: list[Row], words: str):
    misses, _ = worst_faults([judged([(*HERE, 0)], found)], 5)
    assert [miss.words for miss in misses] == [words]


@pytest.mark.parametrize(
    ("true", "found", "words"),
    [
        pytest.param([], (*HERE, 0.9, 0), "on a good part", id="good part"),
        pytest.param([(*FAR, 0)], (*HERE, 0.9, 0), "no defect is there", id="a defect elsewhere"),
        pytest.param([(*HERE, 1)], (*HERE, 0.9, 0), "pit is there", id="another class"),
        pytest.param([(*BESIDE, 0)], (*HERE, 0.9, 0), "overlaps by 0.25 only with scratch", id="beside"),
    ],
)
def test_a_false_alarm_says_what_is_there(true: list, found: Row, words: str):
    _, (alarm,) = worst_faults([judged(true, [found])], 5)
    assert alarm.words == f"score 0.90, threshold 0.40; {words}"


def test_a_second_box_on_a_found_defect_is_a_false_alarm_of_its_own_kind():
    misses, (alarm,) = worst_faults([judged([(*HERE, 0)], [(*HERE, 0.9, 0), (*HERE, 0.5, 0)])], 5)
    assert misses == []
    assert alarm.words.endswith("a further box on scratch")


def test_parts_that_pass_as_good_are_the_worst_misses_then_the_largest():
    small, large = (10, 10, 20, 20), (10, 10, 50, 50)
    pictures = [
        judged([(*large, 0), (*small, 1)], [(*FAR, 0.9, 0)], "seen.png"),
        judged([(*small, 0)], [], "small.png"),
        judged([(*large, 1)], [(*large, 0.3, 1)], "large.png"),
    ]
    misses, _ = worst_faults(pictures, 4)
    assert [(miss.picture, miss.passes) for miss in misses] == [(2, True), (1, True), (0, False), (0, False)]
    assert [miss.class_id for miss in misses[2:]] == [0, 1]
    assert len(worst_faults(pictures, 2)[0]) == 2


def test_alarms_on_good_parts_come_first_then_the_surest():
    pictures = [
        judged([(*HERE, 0)], [(*HERE, 0.9, 0), (*FAR, 0.95, 1)]),
        judged([], [(*FAR, 0.5, 1)]),
        judged([], [(*FAR, 0.6, 1)]),
    ]
    _, alarms = worst_faults(pictures, 9)
    assert [alarm.picture for alarm in alarms] == [2, 1, 0]


def fault(true: tuple | None, found: tuple | None) -> Fault:
    shown = [np.array([box], np.float32) if box else np.zeros((0, 4), np.float32) for box in (true, found)]
    return Fault(0, 0, passes=True, words="", rank=(), true_boxes=shown[0], found_boxes=shown[1])


def share_of_top_edge(crop: bytes, ink: tuple[int, int, int]) -> float:
    """How much of the upper edge of HERE, but for its corners, is drawn in that ink; a crop shows 64 x 64 pixels."""
    image = cv2.imdecode(np.frombuffer(crop, np.uint8), cv2.IMREAD_COLOR)[..., ::-1].astype(int)
    left, top, right = (round(side * CROP_PX / 64) for side in HERE[:3])
    return float((np.abs(image[top, left + 4 : right - 4] - ink).max(axis=1) < 90).mean())


def test_the_found_box_is_drawn_solid_and_the_true_one_in_dashes():
    image = plate((100, 100), background=(90, 90, 90))
    assert share_of_top_edge(fault_crop(image, fault(None, HERE)), FOUND_INK) == 1
    assert 0.3 < share_of_top_edge(fault_crop(image, fault(HERE, None)), TRUE_INK) < 0.8
    assert share_of_top_edge(fault_crop(image, fault(FAR, None)), TRUE_INK) == 0


@pytest.mark.parametrize(
    ("wh", "box"),
    [
        pytest.param((4000, 3000), (0, 0, 4000, 3000), id="the whole of a large picture"),
        pytest.param((20, 20), (3, 3, 4, 4), id="a dot in a tiny picture"),
        pytest.param((2000, 30), (1990, 0, 2000, 30), id="at the end of a strip"),
    ],
)
def test_a_crop_has_the_size_of_the_page_whatever_the_picture(wh: tuple[int, int], box: tuple[int, ...]):
    crop = fault_crop(plate(wh), fault(box, None))
    shape = cv2.imdecode(np.frombuffer(crop, np.uint8), cv2.IMREAD_COLOR).shape
    assert max(shape[:2]) == CROP_PX
    assert len(crop) < 30_000
