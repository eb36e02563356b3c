from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from data_contracts.dataset import DatasetPin, DatasetRef
from data_contracts.errors import DatasetRepoError
from tasks.datasets.pinned_copy import PinnedCopy, TreeFile, disk_errors_told, list_tree, remove_tree

CONTENT = {"data.yaml": b"names: [a]\n", "images/train/a.png": b"a" * 4000, "labels/train/a.txt": b""}


def md5(content: bytes) -> str:
    """DVC's name for a content."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


class Cache:
    """Objects in a folder, and the pin of a dataset made of them."""

    def __init__(self, folder: Path, content: dict[str, bytes], **changes: object) -> None:
        self.folder = folder
        folder.mkdir()
        self.files = tuple(TreeFile(path, md5(text)) for path, text in sorted(content.items()))
        listing = json.dumps([{"md5": file.md5, "relpath": file.path} for file in self.files]).encode()
        fields = {
            "name": "plates", "ref": DatasetRef(repository="/somewhere"), "commit": "0" * 40,
            "dvc_hash": md5(listing) + ".dir", "file_count": len(content),
            "size_bytes": sum(map(len, content.values())),
        }  # fmt: skip
        self.pin = DatasetPin.model_validate(fields | changes)
        self.path_of(self.pin.dvc_hash).write_bytes(listing)
        for text in content.values():
            self.path_of(md5(text)).write_bytes(text)

    def path_of(self, oid: str) -> Path:
        """Where an object lies."""
        return self.folder / oid


@pytest.fixture
def home(tmp_path):
    yield tmp_path / "pinned"
    for folder in (tmp_path / "pinned").glob("*"):
        remove_tree(folder)


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "cache", CONTENT)


def make(home: Path, cache: Cache) -> PinnedCopy:
    """A finished copy."""
    home.mkdir(exist_ok=True)
    copy = PinnedCopy(home, cache.pin)
    assert copy.write(cache.files, cache.path_of) == ()
    return copy


def test_a_copy_is_complete_once_it_is_written(home, cache):
    home.mkdir()
    assert not PinnedCopy(home, cache.pin).is_complete()
    copy = make(home, cache)
    assert copy.is_complete()
    assert list_tree(copy.folder) == cache.files
    assert copy.altered() == ()


MARKS = {"gone": None, "empty": "", "cut": '{"pin": {', "of an older version": '{"name": "plates"}'}


@pytest.mark.parametrize("text", MARKS.values(), ids=MARKS)
def test_a_copy_without_its_mark_is_not_complete(home, cache, text):
    copy = make(home, cache)
    mark = home / f"{copy.key}.json"
    mark.unlink() if text is None else mark.write_text(text)
    assert not copy.is_complete()


def test_a_copy_whose_folder_is_gone_is_not_complete(home, cache):
    copy = make(home, cache)
    remove_tree(copy.folder)
    assert not copy.is_complete()


def test_a_copy_that_was_moved_with_other_times_stays_complete(home, cache):
    copy = make(home, cache)
    for path in copy.folder.rglob("*"):
        os.utime(path, (1, 1))
    assert copy.is_complete()
    assert copy.is_complete()


def test_a_list_of_files_that_was_altered_proves_nothing(home, cache):
    copy = make(home, cache)
    (home / f"{copy.key}.files.json").write_text("[]")
    assert copy.altered() == tuple(sorted(CONTENT))
    assert not copy.is_complete()


def test_damaged_objects_are_given_back_and_nothing_is_left(home, cache):
    home.mkdir()
    wrong = next(file for file in cache.files if file.path == "images/train/a.png")
    cache.path_of(wrong.md5).write_bytes(b"b" * 4000)
    assert PinnedCopy(home, cache.pin).write(cache.files, cache.path_of) == (wrong,)
    assert list(home.iterdir()) == []


OUTSIDE = {"up": "../a.png", "absolute": "/a.png", "up within": "images/../../a.png"}


@pytest.mark.parametrize("path", OUTSIDE.values(), ids=OUTSIDE)
def test_a_list_that_leads_outside_is_refused(home, tmp_path, path):
    cache = Cache(tmp_path / "other", CONTENT | {path: b"x"})
    home.mkdir()
    with pytest.raises(DatasetRepoError, match="paths inside the dataset"):
        PinnedCopy(home, cache.pin).write(cache.files, cache.path_of)
    assert list(home.iterdir()) == []


def test_another_count_than_the_pins_is_refused(home, tmp_path):
    cache = Cache(tmp_path / "other", CONTENT, file_count=4)
    home.mkdir()
    with pytest.raises(DatasetRepoError, match="expected 4 files, got 3"):
        PinnedCopy(home, cache.pin).write(cache.files, cache.path_of)


def test_too_little_room_is_told_before_anything_is_written(home, tmp_path):
    cache = Cache(tmp_path / "other", CONTENT, size_bytes=1 << 60)
    home.mkdir()
    with pytest.raises(DatasetRepoError, match=r"disk of .*pinned: expected 1099511627776 MiB free"):
        PinnedCopy(home, cache.pin).write(cache.files, cache.path_of)
    assert list(home.iterdir()) == []


def test_a_disk_that_fills_up_on_the_way_is_told_and_leaves_nothing(home, cache):
    home.mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[0][1]))
    try:
        with pytest.raises(DatasetRepoError, match=r"on a disk with room, got File too large"), disk_errors_told(home):
            PinnedCopy(home, cache.pin).write(cache.files, cache.path_of)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before[0])
        signal.signal(signal.SIGXFSZ, before[1])
    assert list(home.iterdir()) == []


def test_a_home_that_is_a_file_is_told(tmp_path):
    (tmp_path / "pinned").write_text("")
    with (
        pytest.raises(DatasetRepoError, match=r"pinned/x: expected a file or folder that can be used"),
        disk_errors_told(tmp_path / "pinned"),
    ):
        (tmp_path / "pinned" / "x").mkdir(parents=True)


def test_the_old_copy_stays_until_the_new_one_is_whole(home, cache):
    copy = make(home, cache)
    shutil.rmtree(cache.folder)
    with pytest.raises(FileNotFoundError):
        copy.write(cache.files, cache.path_of)
    assert copy.is_complete()
