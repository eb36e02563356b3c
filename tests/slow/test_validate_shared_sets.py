from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import shared_data
from data_contracts.errors import DatasetError
from tasks.scan import DatasetScan
from tasks.validate import ValidateConfig, judge_scan, rejected_by_layout, scan_folder, validate_folder
from tasks.validation.findings import Finding, ValidationReport

PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"
CONFIG = ValidateConfig.model_validate(yaml.safe_load(PARAMS.read_text())["job"]["validation"])
KNOWN = {
    "neu-det-yolo": {"label_duplicate": 1, "picture_copy": 1, "copy_labels_differ": 1},
    "deeppcb-yolo": {},
    "magnetic-tile-yolo": {"near_copy_across_splits": 2},
    "kolektor-sdd-yolo": {"picture_copy": 2, "copy_labels_differ": 2},
    "lpbf-metal-yolo": {},
}


@pytest.mark.parametrize(("name", "rules"), KNOWN.items(), ids=KNOWN)
def test_shared_sets_give_their_known_faults_only(name, rules):
    report = validate_folder(shared_data() / name, CONFIG)
    assert report.accepted
    assert Counter(finding.rule for finding in report.findings) == rules


def _by_file(report: ValidationReport) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        found.setdefault(finding.file, []).append(finding)
    return found


LABEL_WORDS = {
    "class_out_of_range": ("class_id", 2, "6"), "class_negative": ("class_id", 1, "-1"),
    "class_name": ("class_name", 1, "scratch"), "coord_over_1": ("box_range", 2, "1.07"),
    "coord_negative": ("box_range", 1, "-0.042"), "pixel_coords": ("box_range", 1, "pixels"),
    "comma": ("label_columns", 1, "commas"), "comma_space": ("label_numbers", 1, "commas"),
    "nan": ("label_numbers", 1, "nan"), "four_columns": ("label_columns", 1, "4 fields"),
    "glued_rows": ("label_columns", 1, "joined"), "coord_negative_tiny": ("box_clipped", 1, ""),
    "box_over_edge": ("box_clipped", 1, ""), "confidence_column": ("label_confidence", 1, "0.873"),
    "polygon": ("label_polygon", 1, ""), "polygon_4_numbers": ("label_polygon", 1, ""),
    "polygon_mixed_with_box": ("label_polygon", 2, ""), "obb_9_columns": ("label_polygon", 1, ""),
    "duplicate_rows": ("label_duplicate", 3, "line 1"), "same_box_two_classes": ("box_two_classes", 2, "line 1"),
    "zero_width": ("box_zero", 1, ""), "sub_pixel": ("box_tiny", 1, "0.4 x 0.4"),
    "comment_line": ("label_comment", 1, "#"), "label_without_image": ("label_orphan", None, ""),
}  # fmt: skip
"""The rule, line and words that an entry's right handling asks for; entries that are not here give no finding."""
VERDICTS = {
    "class_id": "error",
    "class_name": "error",
    "box_range": "error",
    "label_columns": "error",
    "label_numbers": "error",
}
BOXES = {
    "box_over_edge": [0.925, 0.5, 0.15, 0.2],
    "polygon": [0.36, 0.465, 0.28, 0.27],
    "polygon_4_numbers": [0.375, 0.415, 0.25, 0.17],
}


@pytest.fixture(scope="module")
def quirks() -> tuple[list[dict[str, Any]], DatasetScan, ValidationReport]:
    folder = shared_data() / "label-quirks"
    scan = scan_folder(folder, CONFIG, None)
    return json.loads((folder / "manifest.json").read_text())["labels"], scan, judge_scan(scan, CONFIG)


def test_label_quirks_are_handled_as_their_manifest_says(quirks):
    entries, _, report = quirks
    assert len(entries) == 37
    found, named = _by_file(report), {entry["id"] for entry in entries}
    assert set(LABEL_WORDS) <= named
    for entry in entries:
        findings = found.get(entry["label"] or "", [])
        if entry["id"] in LABEL_WORDS:
            rule, line, words = LABEL_WORDS[entry["id"]]
            assert [(one.rule, one.line) for one in findings] == [(rule, line)], entry["id"]
            assert words in findings[0].got, entry["id"]
            assert findings[0].severity == VERDICTS.get(rule, "warning"), entry["id"]
        else:
            assert findings == [], entry["id"]
        severity = findings[0].severity if findings else "accept"
        allowed = {"accept": {"accept"}, "ignore": {"accept"}, "warn": {"warning"}, "error": {"error"}}
        assert severity in allowed.get(entry["expect"], {"warning", "error", "accept"}), entry["id"]


def test_label_quirks_give_the_boxes_of_their_manifest(quirks):
    entries, scan, _ = quirks
    boxes = scan.labels[scan.labels["class_id"].notna() & (scan.labels["split"] == "train")]
    for entry in entries:
        rows = boxes[boxes["file"] == entry["label"]]
        if entry["boxes_expected"] is not None:
            assert len(rows) == entry["boxes_expected"], entry["id"]
        if entry["id"] in BOXES:
            box = rows.iloc[0][["centre_x", "centre_y", "width", "height"]].astype(float).tolist()
            assert box == pytest.approx(BOXES[entry["id"]], abs=1e-6), entry["id"]
    states = scan.pictures.set_index("path")["label_state"]
    assert set(states.loc[["images/empty.png"]]) | set(states.loc[["images/whitespace_only.png"]]) == {"empty"}
    assert set(states.loc[["images/missing_label.png"]]) == {"missing"}


YAML_WORDS = {
    "windows_absolute": ("accepted", "path_note", "images"),
    "names_bool_and_numbers": ("accepted", None, ""),
    "duplicate_names": ("rejected", "layout", "'scratch' twice"),
    "names_from_1": ("rejected", "layout", "the ids 1, 2"),
    "task_segment": ("accepted", "path_note", "Datasets"),
    "absolute_list_file": ("rejected", "layout", "/elsewhere/images/1.png"),
}


@pytest.mark.parametrize("name", YAML_WORDS)
def test_yaml_quirks_are_handled_as_their_manifest_says(name, tmp_path):
    """Each file is put beside pictures where it says that they are, in the folder of another machine."""
    verdict, rule, words = YAML_WORDS[name]
    source = shared_data() / "label-quirks"
    folders = {"windows_absolute": ("train/images", "valid/images", "test_final _og/images"),
               "task_segment": ("images/train", "images/val")}.get(name, ("images",))  # fmt: skip
    for number, folder in enumerate(folders):
        place = tmp_path / folder
        place.mkdir(parents=True)
        shutil.copy(source / "images/control_ok.png", place / f"{number}.png")
    if name == "absolute_list_file":
        for split in ("train", "val"):
            (tmp_path / f"{split}.txt").write_text("/elsewhere/images/1.png\n")
    shutil.copy(source / f"yaml/{name}.yaml", tmp_path / "data.yaml")
    try:
        layout = scan_folder(tmp_path, CONFIG, None).layout
    except DatasetError as error:
        (*_, finding) = rejected_by_layout(error, tmp_path).findings
        assert (verdict, rule) == ("rejected", finding.rule)
        assert words in finding.got
    else:
        assert verdict == "accepted"
        assert all(words in note for note in layout.notes)
        assert bool(layout.notes) == bool(rule)
        assert len(layout.splits) == max(len(folders), 2)
    if name == "names_bool_and_numbers":
        assert layout.class_names == ("no", "yes", "1", "0010", "on")


UNREAD = {
    "float32.tiff": "picture_unsupported", "truncated_progressive.jpg": "picture_undecodable",
    "truncated.png": "picture_undecodable", "broken_stream.png": "picture_undecodable",
    "bad_crc.png": "picture_undecodable", "text_not_image.jpg": "picture_unsupported",
    "zero_bytes.jpg": "picture_unsupported", "bad_width.bmp": "picture_too_large",
    "multipage.tiff": "picture_unsupported", "tiny_1px.png": "picture_undecodable",
    "bomb_30000x30000_1bit.png": "picture_too_large", "gray16.pgm": "picture_format", "heif.heif": "picture_format",
    "avif.avif": "picture_format", "animated.gif": "picture_format", "bomb_44_bytes.gif": "picture_format",
}  # fmt: skip
SIZES = {
    "exif_orientation_3.jpg": (1200, 1800), "exif_orientation_6.jpg": (1200, 1800),
    "tiff_1bit_orientation_6.tif": (590, 88), "junk_header.jpg": (1024, 768), "mpo_as_jpg.jpg": (640, 480),
    "trailing_garbage.jpg": (480, 360), "exif_broken.jpg": (500, 500),
}  # fmt: skip


def test_nasty_files_as_training_data_are_handled_as_their_manifest_says(tmp_path):
    source = shared_data() / "nasty"
    entries = json.loads((source / "manifest.json").read_text())["files"]
    assert len(entries) == 43
    for entry in entries:
        place = tmp_path / "images" / f"{len(list(tmp_path.glob('images/*'))):02d}" / entry["file"]
        place.parent.mkdir(parents=True)
        shutil.copy(source / entry["file"], place)
        label = Path(str(place).replace("/images/", "/labels/")).with_suffix(".txt")
        label.parent.mkdir(parents=True)
        label.write_text("0 .5 .5 .3 .3\n")
    (tmp_path / "data.yaml").write_text("train: images\nnames: [a]\n")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    scan = scan_folder(tmp_path, CONFIG.model_copy(update={"max_quarantined_share": 0.5}), None)
    report = judge_scan(scan, CONFIG.model_copy(update={"max_quarantined_share": 0.5}))
    assert report.accepted, "the run goes on without the pictures that it cannot read"
    rows = {Path(row.path).name: row for row in scan.pictures.itertuples()}
    named: dict[str, set[str]] = {}
    for finding in report.findings:
        named.setdefault(Path(finding.file).name, set()).add(finding.rule)
    for entry in entries:
        name, rules = entry["file"], named.get(entry["file"], set())
        assert (name in UNREAD) == bool(rules & set(UNREAD.values())), name
        if name in UNREAD:
            assert UNREAD[name] in rules, name
            assert entry["expect"] in {"reject_clearly", "accept_or_reject_clearly"}, name
        elif entry["expect"] == "ignore":
            assert name not in rows, name
            assert not rules, name
        else:
            assert entry["expect"] == "accept", name
            assert rows[name].boxes == 1, name
            assert rows[name].contrast > 0, f"{name} is no black picture"
        if name in SIZES:
            assert (rows[name].width_px, rows[name].height_px) == SIZES[name], name
    kept_out = {Path(path).name for path in report.quarantined}
    assert kept_out == {name for name, rule in UNREAD.items() if rule != "picture_format"}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before
