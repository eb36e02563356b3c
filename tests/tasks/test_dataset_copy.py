from __future__ import annotations

from pathlib import Path

import pytest

from builders import encode, plate
from data_contracts.errors import DatasetError
from tasks.datasets.dataset_copy import copy_dataset
from tasks.datasets.dataset_layout import read_layout


def _folder(root: Path, yaml_text: str, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"0 0.5 0.5 0.1 0.1\n" if name.endswith(".txt") else encode(plate()))
    (root / "data.yaml").write_text(yaml_text)
    return root


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_roboflow_layout_becomes_the_normal_one(tmp_path):
    names = "train/images/a.v1.png", "train/labels/a.v1.txt", "valid/images/b.png", "valid/labels/b.txt"
    source = _folder(tmp_path / "s", "train: ../train/images\nval: ../valid/images\nnc: 1\nnames: ['no']", *names)
    copy_dataset(read_layout(source), tmp_path / "t")
    assert _files(tmp_path / "t") == [
        "data.yaml", "images/train/a.v1.png", "images/val/b.png", "labels/train/a.v1.txt", "labels/val/b.txt"
    ]  # fmt: skip
    again = read_layout(tmp_path / "t")
    assert again.class_names == ("no",)
    assert again.notes == ()


def test_what_the_layout_does_not_use_stays_out_and_extras_come_along(tmp_path):
    names = "images/train/a.png", "labels/train/a.txt", "labels/train/orphan.txt", "labels/train.cache", "LICENCE"
    source = _folder(tmp_path / "s", "train: images/train\nnames: [x]", *names)
    copy_dataset(read_layout(source), tmp_path / "t", extras=("LICENCE",))
    assert _files(tmp_path / "t") == ["LICENCE", "data.yaml", "images/train/a.png", "labels/train/a.txt"]


def test_an_extra_that_is_missing_is_named(tmp_path):
    source = _folder(tmp_path / "s", "train: images/train\nnames: [x]", "images/train/a.png")
    with pytest.raises(DatasetError, match="LICENCE"):
        copy_dataset(read_layout(source), tmp_path / "t", extras=("LICENCE",))


def test_two_pictures_for_one_place_are_named(tmp_path):
    names = "train/images/a.png", "images/a.png"
    source = _folder(tmp_path / "s", "train: [train/images, images]\nnames: [x]", *names)
    with pytest.raises(DatasetError, match=r"images/a\.png and train/images/a\.png"):
        copy_dataset(read_layout(source), tmp_path / "t")


def test_a_dataset_without_pictures_is_refused(tmp_path):
    (tmp_path / "images").mkdir()
    _folder(tmp_path, "train: images\nnames: [x]")
    with pytest.raises(DatasetError, match="no picture"):
        copy_dataset(read_layout(tmp_path), tmp_path / "t")
