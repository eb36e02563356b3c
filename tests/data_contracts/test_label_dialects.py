from __future__ import annotations

import json

import pytest

from builders import shared_data
from data_contracts.labels import LabelBox, LabelProblem, format_label_rows, parse_label_bytes

BOX = (0.5, 0.5, 0.2, 0.1)
READ = {
    "polygon": (b"0 0.4 0.45 0.6 0.45 0.6 0.55 0.5 0.5 0.4 0.55", BOX, "label_polygon"),
    "triangle": (b"0 0.4 0.45 0.6 0.45 0.5 0.55", BOX, "label_polygon"),
    "oriented box": (b"0 0.5 0.45 0.6 0.5 0.5 0.55 0.4 0.5", BOX, "label_polygon"),
    "confidence column": (b"0 0.5 0.5 0.2 0.1 0.87", BOX, "label_confidence"),
    "box over the edge": (b"0 0.95 0.5 0.2 0.2", (0.925, 0.5, 0.15, 0.2), "box_clipped"),
    "centre a little outside": (b"0 -0.005 0.5 0.2 0.1", (0.0475, 0.5, 0.095, 0.1), "box_clipped"),
}
LEFT_OUT = {
    "comment": (b"# by hand\n", 1, "label_comment"),
    "no width": (b"0 0.5 0.5 0 0.1", 1, "box_zero"),
    "polygon without area": (b"0 0.1 0.1 0.2 0.1 0.3 0.1", 1, "box_zero"),
    "wholly outside after clipping": (b"0 -0.009 0.5 0.01 0.1", 1, "box_zero"),
    "row again": (b"0 0.5 0.5 0.2 0.1\n\n0 0.50 0.5 0.2 0.1", 3, "label_duplicate"),
}
REFUSED = {
    "confidence over 1": (b"0 0.5 0.5 0.2 0.1 7", "label_columns"),
    "even number of polygon columns": (b"0 0.1 0.1 0.2 0.1 0.3 0.4 0.5", "label_columns"),
    "glued rows": (b"0 0.3 0.4 0.2 0.250 0.7 0.6 0.1 0.15", "label_columns"),
    "polygon outside": (b"0 0.1 0.1 1.2 0.1 0.3 0.4", "box_range"),
    "word with commas": (b"0, 0.5, 0.5, 0.2, 0.1", "label_numbers"),
    "UTF-16": ("0 0.5 0.5 0.2 0.1".encode("utf-16"), "label_encoding"),
}


@pytest.mark.parametrize(("data", "box", "rule"), READ.values(), ids=READ)
def test_readable_dialects_give_a_box_and_a_warning(data, box, rule):
    (row,) = parse_label_bytes(data, 1)
    assert isinstance(row, LabelBox)
    assert row.box_cxcywh == pytest.approx(box)
    assert [(warning.rule, warning.severity, warning.line) for warning in row.warnings] == [(rule, "warning", 1)]


@pytest.mark.parametrize(("data", "line", "rule"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_rows_that_are_left_out_are_named(data, line, rule):
    row = parse_label_bytes(data, 1)[-1]
    assert isinstance(row, LabelProblem)
    assert (row.line, row.rule, row.severity) == (line, rule, "warning")


@pytest.mark.parametrize(("data", "rule"), REFUSED.values(), ids=REFUSED)
def test_rows_that_are_errors(data, rule):
    (row,) = parse_label_bytes(data, 1)
    assert isinstance(row, LabelProblem)
    assert (row.rule, row.severity) == (rule, "error")


def test_a_correct_row_has_no_warning():
    (row,) = parse_label_bytes(b"0 0.5 0.5 1 1", 1)
    assert row == LabelBox(1, 0, (0.5, 0.5, 1.0, 1.0), "0 0.5 0.5 1 1")


@pytest.mark.parametrize("data", [data for data, _, _ in READ.values()], ids=READ)
def test_written_rows_read_back_equal_and_clean(data):
    (row,) = parse_label_bytes(data, 1)
    (again,) = parse_label_bytes(format_label_rows([row]).encode(), 1)
    assert again.warnings == ()
    assert again.box_cxcywh == pytest.approx(row.box_cxcywh, abs=1e-8)


def test_label_files_of_the_shared_folder():
    folder = shared_data() / "label-quirks"
    entries = json.loads((folder / "manifest.json").read_text())["labels"]
    for entry in (entry for entry in entries if entry["label"] and entry["image"]):
        rows = parse_label_bytes((folder / entry["label"]).read_bytes(), 6)
        errors = [row for row in rows if isinstance(row, LabelProblem) and row.severity == "error"]
        boxes = [row for row in rows if isinstance(row, LabelBox)]
        clean = len(boxes) == len(rows) and not any(row.warnings for row in boxes)
        verdict = "error" if errors else "accept" if clean else "accept_warn"
        if entry["id"] in {"same_box_two_classes", "sub_pixel", "missing_label"}:
            assert not errors, entry["id"]  # Found on the tables, not on the row.
        elif entry["expect"] in {"accept", "accept_warn", "error"}:
            assert verdict == entry["expect"], entry["id"]
        if entry["boxes_expected"] is not None:
            assert len(boxes) == entry["boxes_expected"], entry["id"]
