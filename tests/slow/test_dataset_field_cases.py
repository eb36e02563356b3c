"""Faults that people had with datasets in the field, each built small, judged from end to end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import yaml

from builders import Image, encode, write_mini_dataset
from tasks.splits import SplitConfig
from tasks.validate import ValidateConfig, scan_folder, validate_folder
from tasks.validation.findings import ValidationReport
from tasks.working_copy import split_and_copy

PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"
JOB = yaml.safe_load(PARAMS.read_text())["job"]
CONFIG = ValidateConfig.model_validate(JOB["validation"])
SPLITS = SplitConfig.model_validate(JOB["splits"])
GROUPED = CONFIG.model_copy(update={"group_pattern": r"^(part\d+)_"})


def _errors(report: ValidationReport) -> list[tuple[str, int | None, str]]:
    return [(one.file, one.line, one.rule) for one in report.findings if one.severity == "error"]


def test_a01_class_ids_that_the_list_lacks_refuse_the_dataset(tmp_path):
    folder = write_mini_dataset(tmp_path / "d", counts={"train": 6}).folder
    wrong = {"p1": "2", "p2": "-1", "p3": "0.5"}
    for stem, written in wrong.items():
        (folder / f"labels/train/{stem}.txt").write_text(f"1 0.2 0.2 0.1 0.1\n{written} 0.5 0.5 0.1 0.1\n")
    report = validate_folder(folder, CONFIG)
    assert not report.accepted
    assert _errors(report) == [(f"labels/train/{stem}.txt", 2, "class_id") for stem in wrong]
    assert [one.got for one in report.findings if one.rule == "class_id"] == list(wrong.values())
    assert all("from 0 to 1" in one.expected for one in report.findings if one.rule == "class_id")


def test_a01_ids_that_are_all_shifted_are_told_as_such(tmp_path):
    folder = write_mini_dataset(tmp_path / "d", counts={"train": 6}).folder
    for label in (folder / "labels/train").iterdir():
        rows = [line.split(" ", 1) for line in label.read_text().splitlines()]
        label.write_text("".join(f"{int(number) + 1} {box}\n" for number, box in rows))
    report = validate_folder(folder, CONFIG)
    assert not report.accepted
    assert ("data.yaml, names", None, "class_ids_shifted") in _errors(report)


def test_a02_links_of_any_kind_give_the_same_labelled_count(tmp_path):
    plain = write_mini_dataset(tmp_path / "plain", counts={"train": 4}).folder
    folders = write_mini_dataset(tmp_path / "folders", counts={"train": 4}, images_symlink=True).folder
    files = write_mini_dataset(tmp_path / "files", counts={"train": 4}).folder
    cache = tmp_path / "cache"
    cache.mkdir()
    for number, path in enumerate(sorted(path for path in files.rglob("*") if path.is_file())):
        path.rename(cache / str(number))
        path.symlink_to(cache / str(number))
    states = [scan_folder(folder, CONFIG, None).pictures["label_state"].tolist() for folder in (plain, folders, files)]
    assert states[0].count("labelled") == 4
    assert states[1] == states[2] == states[0]


def test_a04_of_three_dialects_only_the_one_with_commas_is_a_finding(tmp_path):
    folder = write_mini_dataset(tmp_path / "d", counts={"train": 3}).folder
    (folder / "labels/train/p0.txt").write_bytes(b"\xef\xbb\xbf0 0.5 0.5 0.2 0.2\r\n\r\n")
    (folder / "labels/train/p1.txt").write_text("1,0.5,0.5,0.2,0.2\n")
    (folder / "labels/train/p2.txt").write_text("1 0.5 0.5 0.2 0.2\n")
    scan = scan_folder(folder, CONFIG, None)
    assert scan.labels["rule"].notna().sum() == 1
    assert scan.labels.loc[scan.labels["rule"].notna(), ["file", "line"]].to_numpy().tolist() == [
        ["labels/train/p1.txt", 1]
    ]
    assert scan.pictures["boxes"].tolist() == [1, 0, 1]


def test_a03_only_the_place_of_the_yaml_file_counts(tmp_path, monkeypatch):
    folder = write_mini_dataset(tmp_path / "d", counts={"train": 3}).folder
    (folder / "data.yaml").write_text("path: .\ntrain: images/train\nnames: [square, line]\n")
    decoy = write_mini_dataset(tmp_path / "decoy", counts={"train": 5}).folder
    before, seen = (folder / "data.yaml").read_bytes(), []
    for place in (Path("/"), decoy):
        monkeypatch.chdir(place)
        seen.append(scan_folder(folder, CONFIG, None).pictures["sha256"].tolist())
    assert seen[0] == seen[1]
    assert len(seen[0]) == 3
    assert (folder / "data.yaml").read_bytes() == before


def test_a05_cut_and_longer_jpegs_are_reported_and_stay_as_they_are(tmp_path):
    folder = write_mini_dataset(tmp_path / "d", counts={"train": 5}).folder
    for number in range(5):
        (folder / f"images/train/p{number}.png").unlink()
        data = encode(_part(number), "jpeg") + (bytes(16) if number == 1 else b"")
        (folder / f"images/train/p{number}.jpg").write_bytes(data[:-2] if number == 0 else data)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    report = validate_folder(folder, CONFIG)
    told = {one.rule: one.file for one in report.findings if one.file.endswith("jpg")}
    assert told == {"picture_undecodable": "images/train/p0.jpg", "jpeg_end": "images/train/p1.jpg"}
    assert report.quarantined == ("images/train/p0.jpg",)
    split_and_copy(folder, SPLITS, tmp_path / "copy", report.quarantined)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    (copied,) = [path for path in (tmp_path / "copy").rglob("p1.*") if path.suffix != ".txt"]
    assert (copied.is_symlink(), copied.stat().st_nlink) == (False, 1)


def _part(seed: int) -> Image:
    """A picture with structure of its own: blurred noise, as a rough surface shows."""
    rough = np.random.default_rng(seed).integers(0, 256, (160, 160, 3), dtype=np.uint8)
    soft = cv2.GaussianBlur(rough, (0, 0), 6).astype(np.float32)
    return np.clip((soft - soft.mean()) * 6 + 128, 0, 255).astype(np.uint8)


def _leaky(folder: Path) -> Path:
    """12 pictures: a byte copy, one saved again and moved by 2 pixels, and two of one part, all across splits."""
    folder = write_mini_dataset(folder, counts={"train": 0, "val": 0}).folder
    moved = np.roll(_part(1), 2, axis=1)
    files = {f"train/a{n}.png": encode(_part(n)) for n in range(6)} | {
        f"val/b{n}.png": encode(_part(10 + n)) for n in range(2)
    }
    files |= {
        "val/copy.png": files["train/a0.png"],
        "val/again.jpg": encode(moved, "jpeg", quality=85),
        "train/part7_1.png": encode(_part(20)),
        "val/part7_2.png": encode(_part(21)),
    }
    for number, (name, data) in enumerate(sorted(files.items())):
        for place, content in ((f"images/{name}", data), (f"labels/{Path(name).with_suffix('.txt')}", None)):
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content or f"{number % 2} 0.5 0.5 0.2 0.2\n".encode())
    return folder


def test_a06_the_same_part_in_two_splits_gives_three_findings(tmp_path):
    report = validate_folder(_leaky(tmp_path / "d"), GROUPED)
    found = {one.rule: (one.file, one.severity) for one in report.findings if not one.rule.startswith("copy_labels")}
    assert found == {
        "copy_across_splits": ("images/val/copy.png", "error"),
        "near_copy_across_splits": ("images/val/again.jpg", "warning"),
        "group_across_splits": ("images/val/part7_2.png", "error"),
    }
    assert not report.accepted


def test_a06_a_clean_set_gives_none(tmp_path):
    folder = _leaky(tmp_path / "d")
    for name in ("val/copy.png", "val/again.jpg", "val/part7_2.png"):
        (folder / "images" / name).unlink()
        (folder / "labels" / name).with_suffix(".txt").unlink()
    assert Counter(one.rule for one in validate_folder(folder, GROUPED).findings) == {}
