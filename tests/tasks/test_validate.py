from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from builders import encode, encode_16bit, encode_mode, noisy_plate, write_mini_dataset
from data_contracts.errors import DatasetError, Problem
from scan_tables import Made, scan_of
from tasks.scanning import near_duplicates
from tasks.validate import ValidateConfig, require_accepted, validate_folder
from tasks.validation import judging
from tasks.validation.expectations import SUITES, RuleOutcome, load_suite, rule_severities, whole_table_rules
from tasks.validation.findings import Finding, ValidationReport
from tasks.validation.judging import judge_scan, rejected_by_layout
from tasks.validation.quarantine import write_quarantine

CONFIG = ValidateConfig(
    max_bytes=2**25,
    max_pixels=64_000_000,
    min_side_px=10,
    modes=("L", "P", "RGB", "RGBA", "I;16"),
    max_bit_depth=8,
    min_box_px=1.0,
    min_pictures=1,
    min_class_instances=1,
    max_unlabelled_share=0.3,
    group_pattern=r"^(part\d+)_",
    severities={},
    policies={"picture_undecodable": "quarantine", "class_id": "quarantine"},
    max_quarantined_share=0.25,
)
STRICT = CONFIG.model_copy(update={"policies": {}})
SOFT = CONFIG.model_copy(update={"policies": {}, "severities": {"class_id": "warning"}})


LABELS = {
    "class id too high": ("0 0.5 0.5 0.1 0.1\n2 0.5 0.5 0.1 0.1", "class_id", "error", 2, "from 0 to 1"),
    "class by name": ("Line 0.5 0.5 0.1 0.1", "class_name", "error", 1, "the word 'Line', whose id is 1"),
    "class by an unknown name": ("pit 0.5 0.5 0.1 0.1", "class_name", "error", 1, "the word 'pit'."),
    "no text": ("\0\0", "label_encoding", "error", None, "nothing but zero bytes"),
    "class id negative": ("-1 0.5 0.5 0.1 0.1", "class_id", "error", 1, "-1"),
    "class id fractional": ("0.5 0.5 0.5 0.1 0.1", "class_id", "error", 1, "0.5"),
    "commas": ("0,0.5,0.5,0.1,0.1", "label_columns", "error", 1, "commas"),
    "not a number": ("0 nan 0.5 0.1 0.1", "label_numbers", "error", 1, "nan"),
    "pixels": ("0 30 32 20 20", "box_range", "error", 1, "pixels"),
    "polygon": ("0 .1 .1 .3 .1 .3 .4", "label_polygon", "warning", 1, "3 corners"),
    "row again": ("0 .5 .5 .1 .1\n0 .5 .5 .1 .1", "label_duplicate", "warning", 2, "line 1"),
    "one box, two classes": (
        "0 .5 .5 .1 .1\n1 .5 .5 .1 .1",
        "box_two_classes",
        "warning",
        2,
        "line 1, there of class 0",
    ),
    "stray click": ("0 .5 .5 .005 .1", "box_tiny", "warning", 1, "0.3 x 4.8"),
}
"""Label text -> rule, severity, line, words of the finding."""

PICTURES = {
    "cut picture": (encode(noisy_plate(seed=50))[:-400], "picture_undecodable", "error", "cut off"),
    "page": (b"<html>", "picture_unsupported", "error", "html"),
    "too small": (encode(noisy_plate((64, 8))), "picture_small", "error", "64 x 8"),
    "bytes behind": (encode(noisy_plate(seed=51), "jpeg") + b"\0" * 16, "jpeg_end", "warning", "more bytes behind"),
    "16 bits": (
        encode_16bit(noisy_plate(seed=52)[..., 0].astype("uint16") * 257),
        "picture_deep",
        "warning",
        "16 bits",
    ),
    "printer's colours": (encode_mode(noisy_plate(seed=53), "CMYK", "jpeg"), "picture_mode", "warning", "CMYK"),
    "nothing in it": (b"", "picture_unsupported", "error", "no bytes"),
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
    "phone picture": ("images/train/a.heic", "picture_format", "warning", "ends in .heic"),
    "label in capitals": ("labels/train/p0.TXT", "label_ending", "warning", "got .TXT"),
    "another file": ("images/train/list.xlsx", "unexpected_file", "warning", "xlsx"),
}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _add(folder: Path, name: str, picture: bytes, label: str | None = "") -> None:
    _write(folder / f"images/{name}.png", picture)
    if label is not None:
        _write(folder / f"labels/{name}.txt", label.encode())


@pytest.fixture(autouse=True, scope="module")
def _no_near_pairs():
    """Noise has no near copies; the search has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        none = pd.DataFrame({"first": [], "second": [], "distance": []})
        patch.setattr(near_duplicates, "near_pairs", lambda _: none)
        yield


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
    _add(folder, "train/d2", encode(noisy_plate(seed=94)), None)
    _add(folder, "train/d3", encode(noisy_plate(seed=95)), "0 .5 .5 .2 .2")
    _add(folder, "train/e1", encode(noisy_plate(seed=92)), "0 .5 .5 .2 .2")
    _write(folder / "images/train/e1.bmp", encode(noisy_plate(seed=93), "bmp"))
    (folder / "backgrounds.txt").write_text("images/train/d2.png\nimages/train/d3.png\nimages/train/d4.png\n")
    named |= {("picture_copy", "images/train/c2.png"), ("copy_labels_differ", "images/train/c2.png")}
    named |= {("label_missing", "images/train/d1.png"), ("label_shared", "images/train/e1.png")}
    named |= {("background_labelled", "images/train/d3.png"), ("background_unknown", "backgrounds.txt")}
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
    assert report.counts["train"] == {
        "pictures": 8, "labelled": 7, "empty": 1, "listed": 0, "missing": 0, "boxes": 7,
    }  # fmt: skip
    assert report.class_boxes == {"square": {"train": 3, "val": 2}, "line": {"train": 4, "val": 1}}
    assert json.loads(report.to_json())["accepted"] is True


@pytest.fixture(scope="module")
def misplaced(tmp_path_factory) -> ValidationReport:
    """Labels in val that do not lie or are not called as they should; classes that look alike."""
    folder = write_mini_dataset(tmp_path_factory.mktemp("misplaced") / "d").folder
    (folder / "images/train/p0.png").rename(folder / "images/train/pr\u00fcf.png")
    (folder / "labels/train/p0.txt").rename(folder / "labels/train/pru\u0308f.txt")
    (folder / "images/train/p1.png").rename(folder / "images/train/P1.png")
    (folder / "labels/train/p2.txt").unlink()
    (folder / "labels/train/p2.txt").symlink_to("gone.txt")
    for label in (folder / "labels/val").iterdir():
        label.rename(folder / "images/val" / label.name)
    described = (folder / "data.yaml").read_text()
    (folder / "data.yaml").write_text(re.sub(r"(?ms)^names:.*", "names: [pin hole, Pinhole]", described))
    return validate_folder(folder, STRICT)


def _of_rule(report: ValidationReport, rule: str) -> dict[str, Finding]:
    return {one.file: one for one in report.findings if one.rule == rule}


def test_a_label_whose_name_only_looks_like_its_picture_s_is_told_with_the_picture(misplaced):
    found = _of_rule(misplaced, "label_orphan")
    assert list(found) == ["labels/train/p1.txt", "labels/train/pru\u0308f.txt"]
    assert "images/train/P1.png is spelled otherwise" in found["labels/train/p1.txt"].got
    assert "images/train/pr\u00fcf.png is spelled otherwise" in found["labels/train/pru\u0308f.txt"].got


def test_labels_beside_their_pictures_are_told_by_folder(misplaced):
    ((place, finding),) = _of_rule(misplaced, "labels_beside").items()
    assert (place, finding.severity) == ("images/val/", "warning")
    assert finding.got == "label files beside their pictures: 4"


def test_class_names_that_look_alike_are_told(misplaced):
    (finding,) = _of_rule(misplaced, "class_names_alike").values()
    assert (finding.severity, finding.got) == ("warning", "'pin hole' (id 0) and 'Pinhole' (id 1)")


def test_a_dead_link_for_a_label_is_no_background(misplaced):
    assert not misplaced.accepted
    assert [(place, one.severity) for place, one in _of_rule(misplaced, "label_unreadable").items()] == [
        ("labels/train/p2.txt", "error")
    ]


def test_lost_labels_and_lost_pictures_are_refused(tmp_path):
    folder = _mini(tmp_path)
    shutil.rmtree(folder / "labels")
    for picture in (folder / "images/val").iterdir():
        picture.unlink()
    report = validate_folder(folder, CONFIG)
    assert not report.accepted
    found = {(finding.rule, finding.file) for finding in report.findings if finding.severity == "error"}
    assert found == {
        ("no_label_rows", "data.yaml"),
        ("split_pictures", "data.yaml, val"),
        ("split_boxes", "data.yaml, train"),
        ("split_boxes", "data.yaml, val"),
        ("unlabelled_share", "data.yaml, train"),
    }


def test_no_pictures_at_all_never_pass():
    report = judge_scan(scan_of(), CONFIG)
    assert not report.accepted
    assert {"no_pictures", "no_label_rows", "split_pictures", "split_boxes"} <= _rules(report)


BOX = (0, 0.5, 0.5, 0.2, 0.2)


def _rules(report: ValidationReport) -> set[str]:
    return {finding.rule for finding in report.findings}


def _some_bad(bad: int, good: int = 8) -> judging.DatasetScan:
    boxes = [BOX, (1, 0.2, 0.2, 0.2, 0.2)]
    made = [Made(f"images/train/{n}.png", boxes) for n in range(good)]
    made += [Made(f"images/train/bad{n}.png", boxes, bad_lines=["7"]) for n in range(bad)]
    return scan_of(*made, Made("images/val/9.png", boxes))


@pytest.fixture(scope="module")
def some_bad(tmp_path_factory) -> tuple[ValidationReport, Path]:
    """The report on 11 pictures, 2 of them bad, and the folder of its Data Docs."""
    docs = tmp_path_factory.mktemp("judged") / "docs"
    return judge_scan(_some_bad(2), CONFIG, docs), docs


def test_few_bad_pictures_go_to_quarantine_and_the_rest_goes_on(some_bad, tmp_path):
    report, _ = some_bad
    assert report.accepted
    assert report.quarantined == ("images/train/bad0.png", "images/train/bad1.png")
    assert report.quarantine_reasons["images/train/bad0.png"] == ("class_id",)
    assert "11 pictures (2 in quarantine)" in report.summary()
    assert [finding.severity for finding in report.findings] == ["error", "error"]
    require_accepted(report)
    with write_quarantine(report.quarantine_reasons, tmp_path / "run").open() as file:
        assert list(csv.reader(file))[1:] == [[path, "class_id"] for path in report.quarantined]


def test_every_rule_is_reported_with_its_result(some_bad):
    report, _ = some_bad
    assert {rule.rule for rule in report.rules} == set(rule_severities())
    (result,) = [rule for rule in report.rules if rule.broken]
    assert (result.table, result.rule, result.policy, result.broken) == ("labels", "class_id", "quarantine", 2)
    assert result.checked == 24


def test_data_docs_name_rules_and_places_and_need_nothing_outside(some_bad):
    _, docs = some_bad
    pages = {path.stem: path.read_text() for path in (docs / "validations").rglob("*.html")}
    assert set(pages) == set(SUITES)
    assert "class_id (error)" in pages["labels"]
    assert "labels/train/bad0.txt:3" in pages["labels"]
    index = (docs / "index.html").read_text()
    assert all(f">{name}</a>" in index for name in SUITES)
    for page in (*pages.values(), index):
        assert not re.search(r"<(script|link|img)[^>]*https?://", page)


def _outcome(rows: int, rule: str = "class_id") -> RuleOutcome:
    words = {"expected": "0 to 1", "got": "{got}", "action": "Mend it."}
    return RuleOutcome("labels", rule, "error", rows, np.arange(rows), words)


@pytest.mark.parametrize(
    ("outcome", "config", "refused"),
    [(_outcome(1), STRICT, True), (_outcome(0), STRICT, False), (_outcome(1), CONFIG, False),
     (_outcome(1, "box_size"), CONFIG, True), (_outcome(1), SOFT, False)],
    ids=["an error", "nothing found", "goes to quarantine", "a rule without a policy", "made a warning"],
)  # fmt: skip
def test_what_refuses_a_dataset(outcome, config, refused):
    assert judging.rejects(outcome, config) is refused


def test_of_many_places_the_first_are_listed_and_all_are_counted(monkeypatch):
    monkeypatch.setattr(judging, "MOST_FINDINGS", 3)
    labels = pd.DataFrame({"file": "a.txt", "line": range(1, 11), "got": "7"})
    found = list(judging.findings_of(_outcome(10), labels, CONFIG, {}))
    assert [finding.line for finding in found] == [1, 2, 3, None]
    assert found[3].got == "7 more places, 10 in all"


@pytest.fixture(scope="module")
def broken_val() -> ValidationReport:
    """Two of the three pictures of val are broken, and none of the five of train."""
    made = [Made(f"images/train/{n}.png", [BOX]) for n in range(5)]
    made += [Made(f"images/val/{n}.png", [BOX], bad_lines=["7"]) for n in (1, 2)]
    return judge_scan(
        scan_of(*made, Made("images/val/3.png", [BOX])),
        CONFIG.model_copy(update={"min_pictures": 2, "max_quarantined_share": 0.24}),
    )


def test_more_than_the_stated_share_is_refused(broken_val):
    assert not broken_val.accepted
    (finding,) = _of_rule(broken_val, "quarantine_share").values()
    assert (finding.expected, finding.got) == ("at most 24.0% of the pictures in quarantine", "2 of 8 (25.0%)")
    assert len(broken_val.quarantined) == 2


def test_the_whole_is_judged_without_what_is_in_quarantine(broken_val):
    ((place, finding),) = _of_rule(broken_val, "split_pictures").items()
    assert (place, finding.got) == ("data.yaml, val", "1")
    assert broken_val.counts["val"]["pictures"] == 3


def test_a_fault_of_the_yaml_file_is_a_finding_with_its_line(tmp_path):
    problems = (Problem(f"{tmp_path}/data.yaml, line 3", "YAML", "a tab", "Mend it."), "something else")
    report = rejected_by_layout(DatasetError(*problems), tmp_path)
    assert not report.accepted
    assert next((one.file, one.line, one.rule) for one in report.findings) == ("data.yaml", 3, "layout")
    assert "something else" in str(report.findings[1])


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
    "policy of an unknown rule": ({"policies": {"nonsense": "reject"}}, "nonsense"),
    "policy that is none": ({"policies": {"class_id": "ignore"}}, "policies"),
    "quarantine for the whole": (
        {"policies": {"split_boxes": "quarantine"}},
        "split_boxes: no fault of single pictures",
    ),
    "quarantine for no rows": ({"policies": {"no_pictures": "quarantine"}}, "no_pictures"),
    "no kind of colour": ({"modes": []}, "modes"),
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


def test_every_rule_has_words_for_people_and_a_place_in_the_right_group():
    rules = [item for name in SUITES for item in load_suite(name)["expectations"]]
    names = [item["meta"]["rule"] for item in rules]
    assert len(names) == len(set(names))
    assert all(item["meta"]["action"].endswith((".", "!")) for item in rules)
    assert {"split_boxes", "no_pictures", "quarantine_share"} <= whole_table_rules()
    assert not {"class_id", "picture_small"} & whole_table_rules()


def test_an_error_list_is_short_where_a_run_ends():
    one = Finding(file="a", line=1, rule="class_id", severity="error", got="7", expected="0 to 1", action="Mend it.")
    report = ValidationReport(accepted=False, findings=(one,) * 30, counts={}, class_boxes={})
    with pytest.raises(DatasetError) as caught:
        require_accepted(report)
    assert len(caught.value.problems) == 21
    assert str(caught.value.problems[-1]) == "and 10 more errors: see the data report"
