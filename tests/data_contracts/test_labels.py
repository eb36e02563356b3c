from __future__ import annotations

import numpy as np
import pytest

from data_contracts.labels import LabelBox, LabelProblem, boxes_to_pixels, parse_label_lines

GOOD = {
    "plain": "1 0.5 0.5 0.2 0.1",
    "byte order mark": "\ufeff1 0.5 0.5 0.2 0.1",
    "windows line end": "1 0.5 0.5 0.2 0.1\r\n",
    "tabs": "1\t0.5\t0.5\t0.2\t0.1",
    "id with a decimal point": "1.0 0.5 0.5 0.2 0.1",
}
BAD = {
    "commas": ("1,0.5,0.5,0.2,0.1", "label_columns"),
    "two glued rows": ("1 0.5 0.5 0.2 0.11 0.5 0.5 0.2 0.1", "label_columns"),
    "word": ("pit 0.5 0.5 0.2 0.1", "class_name"),
    "not a number": ("1 nan 0.5 0.2 0.1", "label_numbers"),
    "infinite id": ("inf 0.5 0.5 0.2 0.1", "label_numbers"),
    "class not in the list": ("2 0.5 0.5 0.2 0.1", "class_id"),
    "negative class": ("-1 0.5 0.5 0.2 0.1", "class_id"),
    "broken class": ("0.5 0.5 0.5 0.2 0.1", "class_id"),
    "negative height": ("1 0.5 0.5 0.2 -0.1", "box_size"),
    "pixels": ("1 320 240 20 10", "box_range"),
    "just outside the tolerance": ("1 1.011 0.5 0.2 0.1", "box_range"),
}


@pytest.mark.parametrize("line", GOOD.values(), ids=GOOD)
def test_dialects_that_the_trainer_accepts(line):
    (row,) = parse_label_lines([line], 2)
    assert isinstance(row, LabelBox)
    assert (row.line, row.class_id, row.box_cxcywh) == (1, 1, (0.5, 0.5, 0.2, 0.1))


@pytest.mark.parametrize(("line", "rule"), BAD.values(), ids=BAD)
def test_bad_rows_are_named(line, rule):
    (row,) = parse_label_lines([line], 2)
    assert isinstance(row, LabelProblem)
    assert (row.rule, row.line) == (rule, 1)


def test_line_numbers_count_blank_lines_too():
    rows = parse_label_lines(["", "0 0.5 0.5 1 1", "  ", "9 0.5 0.5 1 1"], 1)
    assert [(row.line, type(row)) for row in rows] == [(2, LabelBox), (4, LabelProblem)]


def test_boxes_become_pixels_clipped_to_the_picture():
    boxes = np.array([[0.5, 0.5, 0.5, 0.2], [1.0, 0.0, 0.2, 0.2]])
    np.testing.assert_allclose(boxes_to_pixels(boxes, (200, 100)), [[50, 40, 150, 60], [180, 0, 200, 10]])
