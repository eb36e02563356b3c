"""What of an earlier attempt a later one goes on with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from data_contracts.dataset import DatasetPin, DatasetRef, Split
from tasks.reentry import copy_is_whole, report_is_there, same_revision
from tasks.run_folder import keep, recall
from tasks.splitting.split_artifact import SplitCounts
from tasks.validation.findings import ValidationReport
from tasks.working_copy import WorkingCopy

REF = DatasetRef(repository="plates")
PIN = DatasetPin(name="plates", ref=REF, commit="a" * 40, dvc_hash=f"{'b' * 32}.dir", file_count=3, size_bytes=9)


def test_a_run_keeps_its_commit_although_head_moved_on() -> None:
    assert same_revision(REF, None).revision == "HEAD"
    assert same_revision(REF, PIN) == DatasetRef(repository="plates", revision="a" * 40)


def written_copy(folder: Path) -> WorkingCopy:
    """Two pictures to train with, one to validate and one to test with."""
    for place in ("train/a.png", "train/deep/b.png", "val/c.png", "test/d.png"):
        (folder / "images" / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / "images" / place).write_bytes(b"picture")
    (folder / "data.yaml").write_text("path: .")
    counts = {split: SplitCounts(2 if split is Split.TRAIN else 1, 1, 1, (1,)) for split in Split}
    return WorkingCopy(folder, folder / "data.yaml", ("pit",), counts, 0, ("kept",))


@pytest.mark.parametrize(
    ("case", "damage", "whole"),
    [
        ("untouched", lambda _: None, True),
        ("a picture is gone", lambda folder: (folder / "images/val/c.png").unlink(), False),
        ("one too many", lambda folder: (folder / "images/test/e.png").touch(), False),
        ("no data.yaml", lambda folder: (folder / "data.yaml").unlink(), False),
        ("a label cache of the trainer", lambda folder: (folder / "labels.cache").touch(), True),
    ],
)
def test_a_working_copy_is_used_again_when_it_is_whole(
    case: str, damage: Callable[[Path], None], whole: bool, tmp_path: Path
) -> None:
    keep(tmp_path, "split", WorkingCopy, written_copy(tmp_path / "dataset"))
    damage(tmp_path / "dataset")
    known = recall(tmp_path, "split", WorkingCopy)
    assert known is not None
    assert known.counts[Split.TRAIN].pictures == 2
    assert copy_is_whole(known) is whole


@pytest.mark.parametrize(
    ("case", "accepted", "written", "used"),
    [
        ("accepted", True, True, True),
        ("rejected: looked at again", False, True, False),
        ("its report is gone", True, False, False),
    ],
)
def test_a_validation_is_not_made_again_when_it_accepted(
    case: str, accepted: bool, written: bool, used: bool, tmp_path: Path
) -> None:
    if written:
        (tmp_path / "data_report.html").touch()
    report = ValidationReport(accepted=accepted, findings=(), counts={}, class_boxes={})
    assert report_is_there(report, tmp_path) is used
