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
    "glued rows of squares on the diagonal": (b"0 0.5 0.5 0.2 0.20 0.7 0.7 0.1 0.1", "label_columns"),
    "polygon outside": (b"0 0.1 0.1 1.2 0.1 0.3 0.4", "box_range"),
    "word with commas": (b"0, 0.5, 0.5, 0.2, 0.1", "label_numbers"),
    "UTF-16": ("0 0.5 0.5 0.2 0.1".encode("utf-16"), "label_encoding"),
}
SAID = {
    "commas": (b"0,0.5,0.5,0.2,0.1", "label_columns", "1 field separated by commas"),
    "commas and spaces": (b"0, 0.5, 0.5, 0.2, 0.1", "label_numbers", "numbers separated by commas"),
    "semicolons": (b"0;0.5;0.5;0.2;0.1", "label_columns", "separated by semicolons"),
    "decimal commas": (b"0 0,5 0,5 0,2 0,1", "label_numbers", "commas inside the numbers"),
    "thousands separators": (b"0 1,024 0.5 0.2 0.1", "label_numbers", "commas inside the numbers"),
    "a spreadsheet's export": (b"0;0,5;0,5;0,2;0,1", "label_columns", "separated by semicolons"),
    "class by name": (b"pit 0.5 0.5 0.2 0.1", "class_name", "the word 'pit'"),
    "class by two words": (b"deep pit 0.5 0.5 0.2 0.1", "class_name", "'deep pit'"),
    "class by name, outline": (b"pit .1 .1 .3 .1 .3 .4", "class_name", "the word 'pit'"),
    "not a number": (b"0 nan 0.5 0.2 0.1", "label_numbers", "'nan'"),
    "not a number as class": (b"nan 0.5 0.5 0.2 0.1", "label_numbers", "'nan'"),
    "infinity": (b"0 inf 0.5 0.2 0.1", "label_numbers", "'inf'"),
    "too large for a float": (b"0 1e999 0.5 0.2 0.1", "label_numbers", "1e999"),
    "underscores, as in code": (b"0 0.5 0.5 0.2 0.1_0", "label_numbers", "'0.1_0'"),
    "digits of another script": ("\u0660 0.5 0.5 0.2 0.1".encode(), "label_numbers", "\u0660"),
    "hexadecimal": (b"0x1 0.5 0.5 0.2 0.1", "class_name", "0x1"),
    "huge class id": (b"99999999999999999999 0.5 0.5 0.2 0.1", "class_id", "99999999999999999999"),
    "fraction of a class": (b"0.5 0.5 0.5 0.2 0.1", "class_id", "0.5"),
    "no class id": (b"0.5 0.5 0.2 0.1", "label_columns", "4 fields"),
    "words behind the box": (b"0 0.5 0.5 0.2 0.1 pit", "label_numbers", "'pit'"),
    "JSON": (b'{"boxes": []}', "label_columns", "2 fields"),
    "pixels": (b"0 320 240 20 10", "box_range", "pixels"),
    "sides swapped": (b"0 0.5 0.5 -0.2 0.1", "box_size", "-0.2 x 0.1"),
    "Latin-1": (b"0 0.5 0.5 0.2 0.1\n# gepr\xfcft", "label_encoding", "0xfc"),
    "UTF-16 without mark": ("0 0.5 0.5 0.2 0.1\n".encode("utf-16-le"), "label_encoding", "UTF-16"),
    "zeroed by a lost write": (bytes(512), "label_encoding", "nothing but zero bytes"),
    "tail zeroed": (b"0 0.5 0.5 0.2 0.1\n" + bytes(512), "label_encoding", "zero bytes"),
    "one zero byte": (b"\0", "label_encoding", "nothing but zero bytes"),
    "a picture in its place": (b"\x89PNG\r\n\x1a\n", "label_encoding", "0x89"),
}
"""Label file -> the rule of its first error, and words that the finding must hold."""
HARMLESS = {
    "class in any notation of a whole number": b"0.0 0.5 0.5 0.2 0.1",
    "class with an exponent": b"0e0 0.5 0.5 0.2 0.1",
    "plus sign and no leading zero": b"+0 .5 +.5 .2 .1",
    "exponents": b"0 5e-1 5E-1 2e-01 0.01e1",
    "negative zero": b"-0 0.5 0.5 0.2 0.1",
    "trailing points": b"0. 0.5 0.5 0.2 0.1",
    "old Mac line ends": b"0 0.5 0.5 0.2 0.1\r",
    "no-break spaces": "0\u00a00.5 0.5\u00a00.2 0.1".encode(),
    "mark in the middle": "\n\ufeff0 0.5 0.5 0.2 0.1".encode(),
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


@pytest.mark.parametrize(("data", "rule", "words"), SAID.values(), ids=SAID)
def test_errors_say_what_is_there_instead(data, rule, words):
    row = next(row for row in parse_label_bytes(data, 1) if isinstance(row, LabelProblem))
    assert (row.rule, row.severity) == (rule, "error")
    assert words in row.got


@pytest.mark.parametrize("data", HARMLESS.values(), ids=HARMLESS)
def test_harmless_spellings_give_the_box(data):
    (row,) = parse_label_bytes(data, 1)
    assert isinstance(row, LabelBox)
    assert (row.class_id, row.box_cxcywh, row.warnings) == (0, BOX, ())


def test_a_wrong_byte_is_told_with_its_line():
    (problem,) = parse_label_bytes(b"0 .5 .5 .2 .1\n\n0 .5 .5 .2 .\xff1\n", 1)
    assert problem.line == 3


@pytest.mark.parametrize("data", [b"", b"\n  \n\t\n", b"\xef\xbb\xbf"], ids=["empty", "blank lines", "a mark only"])
def test_no_rows_are_no_problem(data):
    assert parse_label_bytes(data, 1) == []


def test_a_long_row_is_kept_short():
    (problem,) = parse_label_bytes(b"0 " + b"0.25 " * 5000 + b"x", 1)
    assert len(problem.text) <= 400
    assert len(problem.got) < 400


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
