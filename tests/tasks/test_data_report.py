"""The data report: the page, its pictures, and the text for terminals."""

from __future__ import annotations

import base64
import dataclasses
import re
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest

from builders import LIMITS, encode, noisy_plate, plate, write_mini_dataset
from data_contracts.dataset import DatasetPin, DatasetRef
from scan_tables import Made, scan_of
from tasks.data_report import REPORT_JSON, REPORT_PAGE, about_pin, render_table, report_page, write_report
from tasks.reporting.drift import compare_scans
from tasks.reporting.report_charts import Curve, coverage, heat_map_png, histogram_svg, scatter_svg
from tasks.reporting.report_examples import Example, ExampleBook
from tasks.reporting.report_gallery import LEFT_OUT, UNREADABLE, Gallery
from tasks.reporting.report_page import NO_PAIRS, render_page, shorten
from tasks.reporting.report_pictures import FAULT_COLOUR, Mark, small_picture
from tasks.reporting.report_text import by_rule, text_table
from tasks.scan import DatasetScan
from tasks.validation.findings import Finding, ValidationReport
from tasks.validation.scan_facts import count_boxes, count_pictures

PIT = (0, 0.5, 0.5, 0.1, 0.1)


def finding(rule: str = "class_id", severity: str = "error", **fields: object) -> Finding:
    known = {"file": "labels/train/a.txt", "line": 1, "got": "7", "expected": "0 to 1", "action": "Correct the id."}
    return Finding.model_validate(known | {"rule": rule, "severity": severity} | fields)


def report_of(scan: DatasetScan, *findings: Finding, **fields: object) -> ValidationReport:
    accepted = not any(found.severity == "error" for found in findings)
    counted = {"counts": count_pictures(scan), "class_boxes": count_boxes(scan)}
    return ValidationReport.model_validate({"accepted": accepted, "findings": findings} | counted | fields)


def with_files(tmp_path: Path, *pictures: Made, class_names: tuple[str, ...] = ("pit", "scratch")) -> DatasetScan:
    """A scan whose pictures exist; those without a size are no pictures."""
    for number, picture in enumerate(pictures):
        file = tmp_path / picture.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encode(noisy_plate(picture.wh, number)) if picture.wh else b"no picture")
    return scan_of(*pictures, class_names=class_names, root=tmp_path)


# --- the page -----------------------------------------------------------------------------------------------------

NASTY = '<script>alert("x")</script> & {{ 7 * 7 }} \u0634\u0642'
SMALL = (64, 48)


@pytest.fixture(scope="module")
def nasty_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset whose every text is hostile, with findings of all kinds."""
    folder = tmp_path_factory.mktemp("nasty")
    name = "images/train/<i> & \u0634\u0642.png"
    scan = with_files(
        folder,
        Made(name, [PIT], wh=SMALL, bad_lines=["9 0.5 0.5 0.2 0.2"]),
        Made("images/val/long.png", [(1, 0.5, 0.5, 0.5, 0.01)], wh=(12, 300)),
        Made("images/val/broken.png", wh=None, state="missing"),
        class_names=(NASTY, "scratch"),
    )
    findings = [
        finding(file=name.replace("images", "labels").replace(".png", ".txt"), line=2, got=NASTY),
        finding("picture_undecodable", file="images/val/broken.png", line=None),
        finding("split_pictures", file="data.yaml, val", line=None, action=NASTY),
        *(finding("label_columns", file=f"labels/train/{number}.txt") for number in range(5000)),
    ]
    report = report_of(scan, *findings, quarantined=("images/val/broken.png",))
    return report_page(report, scan, NASTY, about={"Dataset": NASTY}).decode()


def test_the_page_escapes_everything_and_needs_nothing_else(nasty_page):
    assert "<script" not in nasty_page
    assert "49" not in re.findall(r"&amp; (\S+) ", nasty_page)
    assert nasty_page.count("&lt;script&gt;") >= 5
    assert not re.search(r"https?:|url\(|@import|<link (?!rel=\"icon\" href=\"data:,\")", nasty_page)
    assert all(source.startswith("data:image/") for source in re.findall(r'src="([^"]*)', nasty_page))


def test_thousands_of_findings_make_no_large_page(nasty_page):
    assert len(nasty_page) < 300_000
    assert "The first 20 of 5,000; validation.json lists all." in nasty_page


def test_breaks_beyond_those_listed_are_counted():
    scan = scan_of(Made("images/train/a.png", [PIT]))
    known = {"table": "labels", "severity": "error", "policy": "reject", "checked": 90000}
    rules = [known | {"rule": "class_id", "broken": 70000}, known | {"rule": "box_range", "broken": 0}]
    report = report_of(scan, finding(), rules=rules)
    page = render_page(report, scan, "many")
    assert "The first 1 of 70,000; validation.json lists 1." in page
    assert "1 of 2 rules hold. These do not:" in page
    assert "error: class_id (70000)" in render_table(report)


def test_what_cannot_be_shown_is_said(nasty_page):
    assert UNREADABLE in nasty_page
    assert "stay out of training until" in nasty_page


def test_findings_stand_worst_and_most_frequent_first(nasty_page):
    rules = re.findall(r'<h3 id="rule-(\w+)"', nasty_page)
    assert rules == ["label_columns", "class_id", "picture_undecodable", "split_pictures"]


def test_a_dataset_without_pictures_has_a_page():
    scan = scan_of()
    report = report_of(scan, finding("split_pictures", file="data.yaml, train", line=None))
    page = render_page(report, scan, "empty")
    assert "Rejected: 1 error" in page
    assert "No picture could be read." in page
    assert "No boxes." in page


def test_a_report_without_findings_says_so(tmp_path):
    scan = with_files(tmp_path, Made("images/train/a.png", [PIT], wh=SMALL))
    page = render_page(report_of(scan), scan, "clean")
    assert "No findings: every rule holds." in page
    assert "Accepted: no findings" in page
    assert "<b>" not in page


@pytest.mark.parametrize("classes", [1, 40, 300])
def test_any_number_of_classes_fits(tmp_path, classes):
    names = tuple(f"class number {number}" for number in range(classes))
    boxes = [(number, 0.5, 0.5, 0.1, 0.1) for number in range(0, classes, 2)]
    scan = with_files(tmp_path, Made("images/train/a.png", boxes, wh=SMALL), class_names=names)
    page = render_page(report_of(scan), scan, "classes")
    table = page[page.index("Boxes per class and split") : page.index('<section id="pictures"')]
    assert all(f"<bdi>{name}</bdi>" in table for name in names)
    assert ("And 204 more classes." in page) == (classes == 300)
    assert len(page) < 2_000_000


def test_the_report_is_written_with_the_change_since_the_previous_revision(tmp_path):
    a, b = Made("images/train/a.png", [PIT], wh=SMALL), Made("images/train/b.png", [PIT], wh=SMALL)
    scan = with_files(tmp_path / "data", a, b)
    report = report_of(scan, finding())
    page = write_report(report, scan, tmp_path / "run/data", "plates", scan_of(a))
    assert page == tmp_path / "run/data" / REPORT_PAGE
    assert "Pictures: 1 before, 2 now; 1 added." in page.read_text("utf-8")
    assert ValidationReport.model_validate_json((page.parent / REPORT_JSON).read_bytes()) == report
    assert "What changed" not in write_report(report, scan, tmp_path / "run/data", "plates").read_text("utf-8")
    assert {path.name for path in page.parent.iterdir()} == {REPORT_PAGE, REPORT_JSON}


def test_the_origin_of_a_pinned_dataset_is_told():
    ref = DatasetRef(repository="/data/plates", revision="v2")
    pin = DatasetPin(
        name="plates", ref=ref, commit="c" * 40, dvc_hash="d" * 32 + ".dir", file_count=1200, size_bytes=3 * 2**20
    )
    about = about_pin(pin)
    assert about["Revision"] == f"{'c' * 40} (v2)"
    assert about["Content"] == f"{'d' * 32}.dir, 1,200 files, 3.0 MiB"
    assert about_pin(pin.model_copy(update={"ref": DatasetRef(repository="/data/plates")}))["Revision"] == "c" * 40


# --- which pictures -----------------------------------------------------------------------------------------------


def sized(name: str, side: float, split: str = "train") -> Made:
    return Made(f"images/{split}/{name}.png", [(0, 0.5, 0.5, side, side), (1, 0.2, 0.2, 0.1, 0.1)])


def test_examples_of_a_class_go_from_the_smallest_to_the_largest_box():
    pictures = [sized(f"p{number}", (number + 1) / 40) for number in range(30)]
    found = ExampleBook(scan_of(*reversed(pictures))).of_class(0)
    widths = [next(mark.box_cxcywh[2] for mark in example.marks if mark.meant) for example in found]
    assert (len(widths), widths[0], widths[-1]) == (6, 1 / 40, 30 / 40)
    assert widths == sorted(widths)
    assert all(sum(mark.meant for mark in example.marks) == 1 for example in found)
    assert [len(example.marks) for example in found] == [2] * 6


def test_examples_leave_out_what_cannot_be_read():
    book = ExampleBook(scan_of(sized("a", 0.1), dataclasses.replace(sized("b", 0.2), wh=None)))
    assert [example.path for example in book.of_class(0)] == ["images/train/a.png"]


LINES = {
    "class out of range": ("7 0.5 0.5 0.2 0.1", (0.5, 0.5, 0.2, 0.1)),
    "commas": ("1,0.5,0.5,0.2,0.1", (0.5, 0.5, 0.2, 0.1)),
    "pixels": ("0 320 240 64 48", (0.5, 0.5, 0.1, 0.1)),
    "over the edge": ("0 1.0 0.5 0.2 0.1", (0.95, 0.5, 0.1, 0.1)),
    "outside": ("0 -1.5 0.5 0.2 0.1", None),
    "words": ("scratch here 0.5 0.2 0.1", None),
    "not finite": ("0 nan 0.5 inf 0.1", None),
    "too few": ("0 0.5 0.5", None),
    "nothing": ("", None),
}


@pytest.mark.parametrize(("line", "box"), LINES.values(), ids=LINES)
def test_the_box_that_a_wrong_line_means_is_marked(line, box):
    book = ExampleBook(scan_of(Made("images/train/a.png", [PIT], bad_lines=[line])))
    (example,) = book.of_findings([finding(line=2)])
    marked = [mark.box_cxcywh for mark in example.marks if mark.faulty]
    assert marked == ([pytest.approx(box)] if box else [])
    assert sum(not mark.faulty for mark in example.marks) == 1
    assert (example.path, example.caption) == ("images/train/a.png", "labels/train/a.txt:2")


def test_findings_show_each_picture_once_and_nothing_for_the_dataset_as_a_whole():
    book = ExampleBook(scan_of(*(sized(f"p{number}", 0.1) for number in range(9))))
    findings = [finding(file=f"labels/train/p{number // 2}.txt", line=number % 2 + 1) for number in range(18)]
    assert len(book.of_findings(findings)) == 6
    assert [example.path for example in book.of_findings(findings[:4])] == [
        "images/train/p0.png",
        "images/train/p1.png",
    ]
    assert book.of_findings([finding(file="data.yaml, val", line=None)]) == []


def test_pictures_that_came_and_whose_labels_changed_are_shown():
    old = [sized("kept", 0.1), sized("changed", 0.1)]
    changed = dataclasses.replace(old[1], boxes=[PIT, PIT, PIT])
    new = scan_of(old[0], changed, *(sized(f"new{number:02}", 0.1) for number in range(24)))
    shown = ExampleBook(new).of_drift(compare_scans(scan_of(*old), new))
    assert [(example.caption, example.note) for example in shown["labels changed"]] == [
        ("images/train/changed.png", "2 -> 3 boxes")
    ]
    assert [Path(example.path).stem for example in shown["pictures added"]] == [
        f"new{number:02}" for number in range(0, 24, 4)
    ]


def test_pairs_across_splits_come_first_then_exact_copies():
    pictures = [sized("a", 0.1), sized("b", 0.1), sized("c", 0.1), sized("d", 0.1, "val")]
    scan = scan_of(pictures[0], dataclasses.replace(pictures[1], content=pictures[0].path), *pictures[2:])
    near = pd.DataFrame({"first": [1, 2], "second": [2, 3], "distance": [3, 5]})
    pairs, total = ExampleBook(scan).of_pairs(near, scan.pictures)
    found = [(Path(pair.first.path).stem + Path(pair.second.path).stem, pair.distance, pair.across) for pair in pairs]
    assert found == [("cd", 5, True), ("ab", None, False), ("bc", 3, False)]
    assert total == 3
    assert ExampleBook(scan).of_pairs(NO_PAIRS, scan.pictures)[1] == 1


# --- the pictures themselves --------------------------------------------------------------------------------------


def decoded(jpeg: bytes) -> np.ndarray:
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


SHAPES = {"square": (640, 640), "long": (500, 1285), "flat": (3000, 40), "tiny": (11, 10)}


@pytest.mark.parametrize("wh", SHAPES.values(), ids=SHAPES)
def test_small_pictures_keep_their_shape_and_fit(tmp_path, wh):
    (tmp_path / "p.png").write_bytes(encode(plate(wh)))
    small = small_picture(tmp_path / "p.png", [Mark((0.5, 0.5, 0.02, 0.02), 0)], LIMITS)
    height, width = decoded(small.whole).shape[:2]
    assert width <= 168
    assert height <= 224
    assert width == 168 or height == 224
    assert width / height == pytest.approx(wh[0] / wh[1], rel=0.3)
    assert decoded(small.close_up).shape[:2] == (168, 168)


def test_the_fault_is_framed_in_red_and_shown_close_up(tmp_path):
    (tmp_path / "p.png").write_bytes(encode(plate((640, 640))))
    small = small_picture(tmp_path / "p.png", [Mark((0.25, 0.5, 0.05, 0.05), 0, faulty=True)], LIMITS)
    distance = np.abs(decoded(small.close_up).astype(int) - FAULT_COLOUR).sum(axis=2)
    rows, columns = np.nonzero(distance < 90)
    assert (columns.min() + columns.max()) / 2 == pytest.approx(84, abs=3)
    assert columns.max() - columns.min() == pytest.approx(168 / 3, abs=8)
    assert rows.max() - rows.min() == pytest.approx(168 / 3, abs=8)
    rows, columns = np.nonzero(np.abs(decoded(small.whole).astype(int) - FAULT_COLOUR).sum(axis=2) < 120)
    assert columns.mean() == pytest.approx(42, abs=3)


def test_a_large_box_needs_no_close_up(tmp_path):
    (tmp_path / "p.png").write_bytes(encode(plate((640, 640))))
    assert small_picture(tmp_path / "p.png", [Mark((0.5, 0.5, 0.6, 0.6), 0)], LIMITS).close_up is None


def test_the_gallery_stays_within_its_budget(tmp_path):
    examples = [Example(f"{number}.png", (), f"p{number}") for number in range(6)]
    for number, example in enumerate(examples):
        (tmp_path / example.path).write_bytes(encode(noisy_plate((200, 200), number)))
    one = len(base64.b64decode(Gallery(tmp_path, examples[:1]).show(examples[0]).whole.partition(",")[2]))
    gallery = Gallery(tmp_path, [*examples, examples[0]], budget_bytes=round(2.5 * one))
    assert gallery.left_out == 4
    assert [bool(gallery.show(example).whole) for example in examples] == [True, True, False, False, False, False]
    assert gallery.show(examples[5]).why_none == LEFT_OUT


def test_a_picture_that_the_scan_refused_or_that_is_gone_is_not_shown(tmp_path):
    refused, gone = Example("a.png", (), "a", readable=False), Example("b.png", (), "b")
    (tmp_path / "a.png").write_bytes(encode(plate()))
    gallery = Gallery(tmp_path, [refused, gone])
    assert [gallery.show(example).why_none for example in (refused, gone)] == [UNREADABLE, UNREADABLE]
    assert gallery.left_out == 0


# --- charts -------------------------------------------------------------------------------------------------------


def test_coverage_counts_the_boxes_over_each_cell():
    boxes = np.array([[0.5, 0.5, 1.0, 1.0], [0.125, 0.125, 0.25, 0.25], [0.999, 0.999, 0.001, 0.001]])
    counts = coverage(boxes, 4)
    assert counts.sum() == 16 + 1 + 1
    assert (counts[0, 0], counts[3, 3], counts[1, 2]) == (2, 2, 1)
    assert coverage(np.empty((0, 4)), 4).sum() == 0
    assert heat_map_png(counts).startswith("data:image/png;base64,")


def test_histograms_show_shares_so_that_splits_of_any_size_compare():
    large = Curve("train", "#111111", np.array([0.0, 300, 100, 0]))
    small = Curve("val", "#222222", np.array([0.0, 3, 1, 0]))
    first, second = re.findall(
        r'<path d="([^"]*)" fill="none" stroke="#(?:111111|222222)"', histogram_svg([large, small], range(5))
    )
    assert first == second
    assert "nan" not in histogram_svg([Curve("train", "#111111", np.zeros(4))], range(5))


def test_the_scatter_takes_no_more_points_than_can_be_told_apart():
    boxes = pd.DataFrame({"class_id": 0.0, "width_px": np.linspace(1, 4000, 9000), "height_px": 10.0})
    assert 1000 <= scatter_svg(boxes, {0: "#111111"}).count("h0") <= 1500
    assert scatter_svg(boxes.assign(width_px=np.nan), {}) == ""
    assert "nan" not in scatter_svg(boxes.head(1), {})


# --- text ---------------------------------------------------------------------------------------------------------


def test_the_text_puts_the_worst_first_and_shortens():
    scan = scan_of(Made("images/train/a.png", [PIT]), Made("images/val/v.png", [PIT]))
    findings = [finding("a_notice", "notice"), finding("b_warning", "warning"), *(finding(line=n) for n in (1, 2, 3))]
    text = render_table(report_of(scan, *findings, quarantined=("images/train/a.png",)), shown_per_rule=2)
    assert text.startswith("rejected: 2 pictures (1 in quarantine), 2 boxes; 3 errors, 1 warning, 1 notice\n")
    assert text.index("error: class_id (3)") < text.index("warning: b_warning (1)") < text.index("notice: a_notice (1)")
    assert "labels/train/a.txt:2" in text
    assert "labels/train/a.txt:3" not in text
    assert ".. and 1 more; --json lists all" in text
    assert text.count("Correct the id.") == 3
    assert "quarantined, kept out of training (1)\n    images/train/a.png" in text
    assert "\x1b" not in text


def test_the_text_says_what_is_expected_once_unless_it_differs():
    scan = scan_of(Made("images/train/a.png", [PIT]))
    same = [finding(line=line, got=f"id {line}") for line in (1, 20)]
    lines = render_table(report_of(scan, *same)).splitlines()
    start = lines.index("error: class_id (2)")
    assert lines[start + 1 : start + 5] == [
        "  Expected: 0 to 1",
        "  What to do: Correct the id.",
        "    labels/train/a.txt:1   id 1",
        "    labels/train/a.txt:20  id 20",
    ]
    other = finding(line=3, expected="none", action="Remove it.\x1b[2J")
    lines = render_table(report_of(scan, same[0], other)).splitlines()
    start = lines.index("error: class_id (2)")
    assert lines[start + 1] == "    labels/train/a.txt:1  id 1 (expected 0 to 1)"
    assert lines[start + 4] == "        Remove it.\ufffd[2J"
    lines = render_table(report_of(scan, same[0], other), shown_per_rule=1).splitlines()
    assert "  Expected: 0 to 1" in lines


def test_a_set_that_could_not_be_counted_has_no_tables():
    text = render_table(ValidationReport(accepted=False, findings=(finding(),), counts={}, class_boxes={}))
    assert "split" not in text
    assert "error: class_id (1)" in text


def test_colours_are_there_only_when_asked_for():
    scan = scan_of(Made("images/train/a.png", [PIT]))
    coloured = render_table(report_of(scan, finding()), colour=True)
    assert "\x1b[31;1merror: class_id (1)\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == render_table(report_of(scan, finding()))


def test_an_empty_report_can_be_shown():
    report = ValidationReport(accepted=False, findings=(), counts={}, class_boxes={})
    assert render_table(report).startswith("rejected: 0 pictures")
    assert by_rule(report.findings) == {}


def test_columns_are_aligned_for_letters_of_any_width():
    lines = text_table(["class", "boxes"], [["裂纹", "7"], ["pit\x1b[2J", "12"], ["x" * 99, "1,234"]])
    assert lines[1].endswith("7")
    assert lines[1].startswith("裂纹")
    assert "\x1b" not in lines[2]
    assert len(lines[3]) == 48 + 2 + 5


def test_long_texts_keep_both_ends():
    assert shorten("images/" + "x" * 1000 + "/end.png", 40).startswith("images/")
    assert shorten("images/" + "x" * 1000 + "/end.png", 40).endswith("/end.png")
    assert len(shorten("y" * 1000, 40)) == 40


def test_a_real_dataset_has_a_page(tmp_path):
    from tasks.scan import scan_dataset

    folder = write_mini_dataset(tmp_path / "d").folder
    scan = scan_dataset(folder, LIMITS)
    page = render_page(report_of(scan), scan, "mini")
    assert page.count("<figure>") >= 10
