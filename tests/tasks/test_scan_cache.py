from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
import yaml

from builders import LIMITS, encode, noisy_plate, write_mini_dataset
from serving.images import decode_image
from tasks.scan import DatasetScan, scan_dataset
from tasks.scanning import picture_facts, scan_files

LONG_AGO_S = 10**9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = write_mini_dataset(tmp_path / "d", counts={"train": 3, "val": 2}).folder
    settle(made)
    return made


def settle(folder: Path) -> None:
    """Make every file old: a file that changed a moment ago is read again."""
    for path in folder.rglob("*"):
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))


class Work:
    """What scans read and decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pictures: list[str] = []
        self.labels: list[str] = []
        self.decoded = 0
        read_picture, read_labels = scan_files.read_picture, scan_files.read_labels

        def reads_picture(path, *rest):
            self.pictures.append(path.name)
            return read_picture(path, *rest)

        def reads_labels(path, *rest):
            self.labels.append(path.name)
            return read_labels(path, *rest)

        def decodes(*given):
            self.decoded += 1
            return decode_image(*given)

        monkeypatch.setattr(scan_files, "read_picture", reads_picture)
        monkeypatch.setattr(scan_files, "read_labels", reads_labels)
        monkeypatch.setattr(picture_facts, "decode_image", decodes)

    def done(self) -> tuple[list[str], list[str], int]:
        """Pictures read, label files read, pictures decoded since the last call."""
        done = (sorted(self.pictures), sorted(self.labels), self.decoded)
        self.pictures, self.labels, self.decoded = [], [], 0
        return done


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


def assert_same(one: DatasetScan, other: DatasetScan) -> None:
    pd.testing.assert_frame_equal(one.pictures, other.pictures)
    pd.testing.assert_frame_equal(one.labels, other.labels)
    assert one.orphan_labels == other.orphan_labels


def add_picture(folder: Path) -> None:
    (folder / "images/train/new.png").write_bytes(encode(noisy_plate(seed=9)))
    (folder / "labels/train/new.txt").write_text("0 0.5 0.5 0.1 0.1\n")


def remove_picture(folder: Path) -> None:
    (folder / "images/train/p0.png").unlink()


def edit_labels(folder: Path) -> None:
    (folder / "labels/train/p1.txt").write_text("0 0.5 0.5 0.1 0.1\nrubbish\n")


def remove_labels(folder: Path) -> None:
    (folder / "labels/train/p1.txt").unlink()


def edit_picture(folder: Path) -> None:
    (folder / "images/train/p0.png").write_bytes(encode(noisy_plate((50, 50))))


def break_picture(folder: Path) -> None:
    (folder / "images/train/p0.png").write_bytes(b"")


def touch_picture(folder: Path) -> None:
    os.utime(folder / "images/train/p0.png", (LONG_AGO_S + 5, LONG_AGO_S + 5))


def rename_picture(folder: Path) -> None:
    (folder / "images/train/p0.png").rename(folder / "images/train/q0.png")


def move_to_val(folder: Path) -> None:
    (folder / "images/train/p0.png").rename(folder / "images/val/p0.png")
    (folder / "labels/train/p0.txt").rename(folder / "labels/val/p0.txt")


def list_twice(folder: Path) -> None:
    described = yaml.safe_load((folder / "data.yaml").read_text())
    (folder / "data.yaml").write_text(yaml.safe_dump(described | {"test": "images/val"}))


def declare(folder: Path) -> None:
    remove_labels(folder)
    (folder / "backgrounds.txt").write_text("images/train/p1.png\n")


EDITS: dict[str, tuple[Callable[[Path], None], list[str], list[str], int]] = {
    "nothing": (lambda folder: None, [], [], 0),
    "a new picture": (add_picture, ["new.png"], ["new.txt"], 1),
    "a picture less": (remove_picture, [], [], 0),
    "other labels": (edit_labels, [], ["p1.txt"], 0),
    "no labels": (remove_labels, [], ["p1.txt"], 0),
    "another picture": (edit_picture, ["p0.png"], [], 1),
    "a broken picture": (break_picture, ["p0.png"], [], 1),
    "a later time": (touch_picture, ["p0.png"], [], 0),
    "another name": (rename_picture, ["q0.png"], ["q0.txt"], 0),
    "another split": (move_to_val, ["p0.png"], ["p0.txt"], 0),
    "in two splits": (list_twice, [], [], 0),
    "declared as background": (declare, [], ["p1.txt"], 0),
}


@pytest.mark.parametrize(("edit", "pictures", "labels", "decoded"), EDITS.values(), ids=EDITS)
def test_only_what_changed_is_read_and_the_tables_are_those_of_a_first_scan(
    edit: Callable[[Path], None], pictures: list[str], labels: list[str], decoded: int, folder: Path, work: Work
) -> None:
    cache = folder.parent / "scans"
    scan_dataset(folder, LIMITS, cache=cache)
    work.done()
    edit(folder)
    again = scan_dataset(folder, LIMITS, cache=cache)
    assert work.done() == (pictures, labels, decoded)
    assert_same(again, scan_dataset(folder, LIMITS))


def test_full_sees_an_edit_that_keeps_size_and_time_and_decodes_it_alone(folder: Path, work: Work) -> None:
    path, cache = folder / "images/train/p0.bmp", folder.parent / "scans"
    path.write_bytes(encode(noisy_plate(seed=1), "bmp"))
    settle(folder)
    first = scan_dataset(folder, LIMITS, cache=cache)
    with path.open("r+b") as file:
        file.write(encode(noisy_plate(seed=2), "bmp"))
    settle(folder)
    work.done()
    quick = scan_dataset(folder, LIMITS, cache=cache)
    assert work.done() == ([], [], 0)
    assert_same(quick, first)
    full = scan_dataset(folder, LIMITS, cache=cache, full=True)
    pictures, labels, decoded = work.done()
    assert (len(pictures), len(labels), decoded) == (len(first.pictures), len(first.pictures), 1)
    assert_same(full, scan_dataset(folder, LIMITS))
    assert_same(scan_dataset(folder, LIMITS, cache=cache), full)


def test_a_file_that_changed_a_moment_ago_is_not_trusted(folder: Path, work: Work) -> None:
    cache = folder.parent / "scans"
    edit_picture(folder)
    edit_labels(folder)
    for _ in range(2):
        scan_dataset(folder, LIMITS, cache=cache)
        work.done()
    scan_dataset(folder, LIMITS, cache=cache)
    assert work.done() == (["p0.png"], ["p1.txt"], 0)


def test_other_classes_limits_or_folders_do_not_share_tables(folder: Path, work: Work) -> None:
    cache = folder.parent / "scans"
    everything = len(scan_dataset(folder, LIMITS, cache=cache).pictures)
    work.done()
    described = yaml.safe_load((folder / "data.yaml").read_text())
    (folder / "data.yaml").write_text(yaml.safe_dump(described | {"names": ["a"]}))
    assert scan_dataset(folder, LIMITS, cache=cache).labels["rule"].tolist().count("class_id") > 0
    assert len(work.done()[1]) == everything
    smaller = type(LIMITS)(LIMITS.max_bytes, 10)
    assert (scan_dataset(folder, smaller, cache=cache).pictures["rule"] == "picture_too_large").all()
    assert work.done()[2] == everything


def test_the_next_revision_in_another_folder_decodes_only_new_pictures(folder: Path, work: Work) -> None:
    cache, copy = folder.parent / "scans", folder.parent / "next"
    scan_dataset(folder, LIMITS, cache=cache)
    shutil.copytree(folder, copy)
    add_picture(copy)
    work.done()
    assert_same(scan_dataset(copy, LIMITS, cache=cache), scan_dataset(copy, LIMITS))
    assert work.done()[2] == 1 + len(scan_dataset(copy, LIMITS).pictures)


def test_the_group_pattern_is_not_part_of_what_is_kept(folder: Path, work: Work) -> None:
    cache = folder.parent / "scans"
    scan_dataset(folder, LIMITS, cache=cache)
    work.done()
    groups = scan_dataset(folder, LIMITS, r"p(\d)", cache=cache).pictures["group"]
    assert groups.tolist()[:2] == ["0", "1"]
    assert work.done() == ([], [], 0)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def of_another_scan(path: Path) -> None:
    frame = pd.read_parquet(path)
    frame.to_parquet(path)


@pytest.mark.parametrize("name", ["pictures.parquet", "labels.parquet"])
@pytest.mark.parametrize("damage", [cut, empty, replace_by_folder, of_another_scan])
def test_tables_that_cannot_be_used_are_made_anew(
    damage: Callable[[Path], None], name: str, folder: Path, work: Work
) -> None:
    cache = folder.parent / "scans"
    first = scan_dataset(folder, LIMITS, cache=cache)
    (kept,) = cache.glob(f"*/{name}")
    damage(kept)
    work.done()
    assert_same(scan_dataset(folder, LIMITS, cache=cache), first)
    assert work.done()[2] == len(first.pictures)


def test_a_cache_that_cannot_be_written_does_not_fail_a_scan(folder: Path) -> None:
    cache = folder.parent / "scans"
    cache.write_text("a file")
    assert_same(scan_dataset(folder, LIMITS, cache=cache), scan_dataset(folder, LIMITS))


def test_scans_at_the_same_time_leave_usable_tables(folder: Path, work: Work) -> None:
    cache = folder.parent / "scans"
    with ThreadPoolExecutor(4) as pool:
        scans = list(pool.map(lambda _: scan_dataset(folder, LIMITS, cache=cache, full=True), range(8)))
    for scan in scans:
        assert_same(scan, scans[0])
    assert not [path.name for path in cache.rglob("*") if path.name.endswith(".tmp")]
    assert_same(scan_dataset(folder, LIMITS, cache=cache), scans[0])


def test_tables_that_nobody_used_for_long_are_removed(folder: Path) -> None:
    cache = folder.parent / "scans"
    scan_dataset(folder, LIMITS, cache=cache)
    (kept,) = cache.iterdir()
    os.utime(kept / "used", (LONG_AGO_S, LONG_AGO_S))
    other = write_mini_dataset(folder.parent / "other").folder
    scan_dataset(other, LIMITS, cache=cache)
    assert not kept.exists()
    assert len(list(cache.iterdir())) == 1


def test_nothing_is_written_into_the_dataset(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    scan_dataset(folder, LIMITS, cache=folder.parent / "scans")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_progress_is_for_terminals_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scan_dataset(folder, LIMITS, progress=True)
    written = capsys.readouterr()
    assert re.sub(r"\s", "", written.out + written.err) == ""
