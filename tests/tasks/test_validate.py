from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from builders import encode, noisy_plate, shared_data, write_mini_dataset
from data_contracts.errors import DatasetError
from tasks.data_report import render_page, render_table, write_report
from tasks.expectations import SUITES, load_suite, rule_severities
from tasks.findings import Finding, ValidationReport
from tasks.validate import ValidateConfig, require_accepted, validate_folder

CONFIG = ValidateConfig(
    max_bytes=2**25,
    max_pixels=64_000_000,
    min_side_px=10,
    min_box_px=1.0,
    min_pictures=1,
    min_class_instances=1,
    max_unlabelled_share=0.3,
    group_pattern=r"^(part\d+)_",
    severities={},
)


LABELS = {
    "class id too high": ("0 0.5 0.5 0.1 0.1\n2 0.5 0.5 0.1 0.1", "class_id", "error", 2, "0 to 1"),
    "class id negative": ("-1 0.5 0.5 0.1 0.1", "class_id", "error", 1, "-1"),
    "class id fractional": ("0.5 0.5 0.5 0.1 0.1", "class_id", "error", 1, "0.5"),
    "commas": ("0,0.5,0.5,0.1,0.1", "label_columns", "error", 1, "commas"),
    "not a number": ("0 nan 0.5 0.1 0.1", "label_numbers", "error", 1, "nan"),
    "pixels": ("0 30 32 20 20", "box_range", "error", 1, "pixels"),
    "polygon": ("0 .1 .1 .3 .1 .3 .4", "label_polygon", "warning", 1, "3 corners"),
    "row again": ("0 .5 .5 .1 .1\n0 .5 .5 .1 .1", "label_duplicate", "warning", 2, "line 1"),
    "one box, two classes": ("0 .5 .5 .1 .1\n1 .5 .5 .1 .1", "box_two_classes", "warning", 2, "class 0 in line 1"),
    "stray click": ("0 .5 .5 .005 .1", "box_tiny", "warning", 1, "0.3 x 4.8"),
}
"""Label text -> rule, severity, line, words of the finding."""

PICTURES = {
    "cut picture": (encode(noisy_plate(seed=50))[:-400], "picture_undecodable", "error", "cut off"),
    "page": (b"<html>", "picture_unsupported", "error", "html"),
    "too small": (encode(noisy_plate((64, 8))), "picture_small", "error", "64 x 8"),
    "bytes behind": (encode(noisy_plate(seed=51), "jpeg") + b"\0" * 16, "jpeg_end", "warning", "trailing"),
}
"""Picture file -> rule, severity, words of the finding."""

PAIRS = {
    "copy in val": ("train/a1", "val/a2", "copy_across_splits", "error", "a1.png in train"),
    "copy in train": ("train/b1", "train/b2", "picture_copy", "warning", "b1.png"),
    "group in two splits": ("train/part7_1", "val/part7_2", "group_across_splits", "error", "part7 in train"),
}
"""Two pictures -> rule, severity, words of the finding on the second."""

FILES = {
    "label without picture": ("labels/train/lost.txt", "label_orphan", "warning", "lost"),
    "phone picture": ("images/train/a.heic", "unexpected_file", "warning", "heic"),
}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _add(folder: Path, name: str, picture: bytes, label: str | None = "") -> None:
    _write(folder / f"images/{name}.png", picture)
    if label is not None:
        _write(folder / f"labels/{name}.txt", label.encode())


@pytest.fixture(scope="module")
def faulty(tmp_path_factory) -> tuple[ValidationReport, set[tuple[str, str]]]:
    """One dataset with every fault once, its report, and the (rule, file) pairs that it must name."""
    folder = write_mini_dataset(tmp_path_factory.mktemp("faulty") / "d").folder
    named = set()
    for number, (name, (text, rule, *_)) in enumerate(LABELS.items()):
        _add(folder, f"train/{name}", encode(noisy_plate(seed=number)), text)
        named.add((rule, f"labels/train/{name}.txt"))
    for name, (data, rule, *_) in PICTURES.items():
        _add(folder, f"train/{name}", data)
        named.add((rule, f"images/train/{name}.png"))
    for number, (first, second, rule, *_) in enumerate(PAIRS.values(), start=60):
        _add(folder, first, encode(noisy_plate(seed=number)))
        _add(folder, second, encode(noisy_plate(seed=number + 10 * ("group" in rule))))
        named.add((rule, f"images/{second}.png"))
    for path, rule, *_ in FILES.values():
        _write(folder / path, b"x")
        named.add((rule, path))
    _add(folder, "train/c1", encode(noisy_plate(seed=90)), "0 .5 .5 .2 .2")
    _add(folder, "train/c2", encode(noisy_plate(seed=90)), "1 .5 .5 .2 .2")
    _add(folder, "train/d1", encode(noisy_plate(seed=91)), None)
    _add(folder, "train/e1", encode(noisy_plate(seed=92)), "0 .5 .5 .2 .2")
    _write(folder / "images/train/e1.bmp", encode(noisy_plate(seed=93), "bmp"))
    named |= {("picture_copy", "images/train/c2.png"), ("copy_labels_differ", "images/train/c2.png")}
    named |= {("label_missing", "images/train/d1.png"), ("label_shared", "images/train/e1.png")}
    return validate_folder(folder, CONFIG), named


def _finding(faulty: tuple[ValidationReport, set[tuple[str, str]]], rule: str, file: str) -> Finding:
    (found,) = [finding for finding in faulty[0].findings if (finding.rule, finding.file) == (rule, file)]
    return found


@pytest.mark.parametrize("name", LABELS)
def test_faults_of_label_rows(name, faulty):
    _, rule, severity, line, words = LABELS[name]
    finding = _finding(faulty, rule, f"labels/train/{name}.txt")
    assert (finding.severity, finding.line) == (severity, line)
    assert words in str(finding)


@pytest.mark.parametrize("name", PICTURES)
def test_faults_of_pictures(name, faulty):
    _, rule, severity, words = PICTURES[name]
    finding = _finding(faulty, rule, f"images/train/{name}.png")
    assert (finding.severity, finding.line) == (severity, None)
    assert words in str(finding)


@pytest.mark.parametrize("name", PAIRS)
def test_faults_of_two_pictures(name, faulty):
    _, second, rule, severity, words = PAIRS[name]
    finding = _finding(faulty, rule, f"images/{second}.png")
    assert finding.severity == severity
    assert words in str(finding)


@pytest.mark.parametrize("name", FILES)
def test_files_that_belong_to_nothing(name, faulty):
    path, rule, severity, words = FILES[name]
    finding = _finding(faulty, rule, path)
    assert finding.severity == severity
    assert words in str(finding)


def test_every_fault_is_named_and_nothing_else(faulty):
    report, named = faulty
    assert {(finding.rule, finding.file) for finding in report.findings} == named
    assert len(report.findings) == len(named)
    assert not report.accepted


def _mini(tmp_path: Path) -> Path:
    return write_mini_dataset(tmp_path / "d").folder


def test_a_clean_set_gives_no_finding_and_counts(tmp_path):
    report = validate_folder(_mini(tmp_path), CONFIG)
    assert report.accepted
    assert report.findings == ()
    assert report.counts["train"] == {"pictures": 8, "labelled": 7, "empty": 1, "missing": 0, "boxes": 7}
    assert report.class_boxes == {"square": {"train": 3, "val": 2}, "line": {"train": 4, "val": 1}}
    assert json.loads(report.to_json())["accepted"] is True


def test_lost_labels_and_lost_pictures_are_refused(tmp_path):
    folder = _mini(tmp_path)
    shutil.rmtree(folder / "labels")
    for picture in (folder / "images/val").iterdir():
        picture.unlink()
    report = validate_folder(folder, CONFIG)
    assert not report.accepted
    found = {(finding.rule, finding.file) for finding in report.findings if finding.severity == "error"}
    assert found == {
        ("split_pictures", "data.yaml, val"),
        ("split_boxes", "data.yaml, train"),
        ("split_boxes", "data.yaml, val"),
        ("unlabelled_share", "data.yaml, train"),
    }


def test_a_class_that_val_lacks_is_named_with_the_severity_of_the_settings(tmp_path):
    folder = _mini(tmp_path)
    for label in (folder / "labels/val").iterdir():
        label.write_text(label.read_text().replace("1 0", "0 0"))
    report = validate_folder(folder, CONFIG.model_copy(update={"severities": {"class_instances": "error"}}))
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("class_instances", "error")]
    assert rule_severities()["class_instances"] == "warning"
    with pytest.raises(DatasetError, match="class line in val"):
        require_accepted(report)


WRONG = {
    "unknown rule": ({"severities": {"class_idd": "error"}}, "class_idd"),
    "pattern": ({"group_pattern": "("}, "no regular expression"),
    "share": ({"max_unlabelled_share": 1.5}, "max_unlabelled_share"),
    "unknown field": ({"max_byte": 1}, "max_byte"),
}


@pytest.mark.parametrize(("change", "words"), WRONG.values(), ids=WRONG)
def test_wrong_settings_are_refused_by_name(change, words):
    with pytest.raises(ValidationError, match=words):
        ValidateConfig.model_validate(CONFIG.model_dump() | change)


def test_suites_are_stored_in_the_form_of_the_library():
    from great_expectations.core import ExpectationSuite

    for name in SUITES:
        stored = load_suite(name)
        again = ExpectationSuite(**stored).to_json_dict()
        assert [item["type"] for item in again["expectations"]] == [item["type"] for item in stored["expectations"]]
        assert all(item["severity"] in {"critical", "warning", "info"} for item in again["expectations"])
        assert all({"rule", "expected", "got", "action"} == set(item["meta"]) for item in again["expectations"])


def test_the_report_is_readable_and_self_contained(faulty, tmp_path):
    report, _ = faulty
    table = render_table(report, shown_per_rule=2)
    assert "rejected: 37 pictures" in table
    assert "error: class_id (3)" in table
    assert ".. and 1 more" in table
    page = write_report(report, tmp_path / "run", "plates & more").read_text()
    assert "plates &amp; more" in page
    assert "&lt;html&gt;" in page
    assert "http" not in page
    assert ValidationReport.model_validate_json((tmp_path / "run/validation.json").read_bytes()) == report


def test_an_empty_report_can_be_shown():
    report = ValidationReport(accepted=False, findings=(), counts={}, class_boxes={})
    assert "No findings" in render_page(report, "t")
    assert "rejected" in render_table(report)


def test_a_shared_set_gives_its_known_faults_only():
    report = validate_folder(shared_data() / "neu-det-yolo", CONFIG)
    assert report.accepted
    assert {(finding.rule, finding.file, finding.line) for finding in report.findings} == {
        ("label_duplicate", "labels/train/crazing_120.txt", 4),
        ("picture_copy", "images/train/patches_105.jpg", None),
        ("copy_labels_differ", "images/train/patches_105.jpg", None),
    }


def test_shared_label_quirks_are_refused_for_the_right_files():
    folder = shared_data() / "label-quirks"
    report = validate_folder(folder, CONFIG)
    refused = {Path(finding.file).stem for finding in report.findings if finding.severity == "error" and finding.line}
    entries = json.loads((folder / "manifest.json").read_text())["labels"]
    assert {entry["id"] for entry in entries if entry["expect"] == "error"} <= refused
    assert not refused & {
        entry["id"] for entry in entries if entry["expect"] in {"accept", "accept_warn", "warn", "ignore"}
    }
    assert set(rule_severities()) >= {finding.rule for finding in report.findings}
