from __future__ import annotations

from pathlib import Path

import pytest

from builders import encode, plate, shared_data, write_mini_dataset
from data_contracts.dataset import Split
from data_contracts.errors import DatasetError
from tasks.dataset_layout import read_layout


def _dataset(folder: Path, yaml_text: str, *pictures: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in pictures:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(plate()))
    (folder / "data.yaml").write_text(yaml_text)
    return folder


def _paths(folder: Path) -> dict[str, list[str]]:
    return {split.value: [str(path) for path in paths] for split, paths in read_layout(folder).splits.items()}


ACCEPTED = {
    "folders": ("images/train", "val: images/val", "images/train/1.png", "images/val/2.png"),
    "valid for val": ("images/train", "valid: images/val", "images/train/1.png", "images/val/2.png"),
    "path beside the file": ("train", "val: val\npath: d", "d/train/1.png", "d/val/2.png"),
    "images below splits": ("train/images", "val: val/images", "train/images/1.png", "val/images/2.png"),
    "one folder too high": ("../train/images", "val: ../v/images", "train/images/1.png", "v/images/2.png"),
    "Windows path": ("D:\\my set\\train\\images", "val: v/images", "train/images/1.png", "v/images/2.png"),
    "another machine": ("/home/x/train/images", "val: v/images", "train/images/1.png", "v/images/2.png"),
}


@pytest.mark.parametrize("case", ACCEPTED.values(), ids=ACCEPTED)
def test_ways_to_name_the_splits(case, tmp_path):
    train_entry, val_line, train, val = case
    yaml_text = f"train: {train_entry}\n{val_line}\nnames: [a]"
    assert _paths(_dataset(tmp_path, yaml_text, train, val)) == {"train": [train], "val": [val]}


def test_several_folders_and_a_list_file(tmp_path):
    folder = _dataset(
        tmp_path, "train: [images/a, images/b]\nval: val.txt\nnames: [a]",
        "images/a/1.png", "images/b/deep/2.png", "images/c/3.png",
    )  # fmt: skip
    (folder / "val.txt").write_text("./images/c/3.png\n\n")
    assert _paths(folder) == {"train": ["images/a/1.png", "images/b/deep/2.png"], "val": ["images/c/3.png"]}


REFUSED = {
    "no names": ("train: images", "names"),
    "ids from 1": ("train: images\nnames: {1: a, 2: b}", "0 to 1"),
    "the same name twice": ("train: images\nnames: [a, b, a]", "distinct"),
    "nc disagrees": ("train: images\nnc: 3\nnames: [a]", "field nc"),
    "no train": ("val: images\nnames: [a]", "field train"),
    "val and valid": ("train: images\nval: images\nvalid: images\nnames: [a]", "val, valid"),
    "missing folder": ("train: pictures\nnames: [a]", "'pictures'"),
    "outside the folder": ("train: ../outside\nnames: [a]", "outside of it"),
    "path outside": ("path: ../outside\ntrain: images\nnames: [a]", "field path"),
    "list of missing pictures": ("train: list.txt\nnames: [a]", "1 of 2 missing"),
    "not YAML": ("train: [", "YAML"),
    "a list": ("- a", "train, val and names"),
}


@pytest.mark.parametrize(("yaml_text", "words"), REFUSED.values(), ids=REFUSED)
def test_faults_are_named(yaml_text, words, tmp_path):
    (tmp_path / "outside").mkdir()
    folder = _dataset(tmp_path / "set", yaml_text, "images/1.png")
    (folder / "list.txt").write_text("images/1.png\n/elsewhere/2.png\n")
    with pytest.raises(DatasetError, match=words):
        read_layout(folder)


def test_no_yaml_file_and_two_of_them(tmp_path):
    with pytest.raises(DatasetError, match=r"data\.yaml"):
        read_layout(tmp_path)
    _dataset(tmp_path, "train: images\nnames: [a]", "images/1.png")
    (tmp_path / "dataset.yaml").write_text("train: images\nnames: [a]")
    with pytest.raises(DatasetError, match="Keep one"):
        read_layout(tmp_path)


def test_class_names_are_the_text_that_was_written(tmp_path):
    folder = _dataset(tmp_path, "train: images\nnc: 4\nnames: [no, 0010, on, 1.50]", "images/1.png")
    assert read_layout(folder).class_names == ("no", "0010", "on", "1.50")


def test_the_working_directory_does_not_matter(tmp_path, monkeypatch):
    folder = _dataset(tmp_path / "set", "path: .\ntrain: images/train\nnames: [a]", "images/train/1.png")
    _dataset(tmp_path / "decoy", "train: images/train\nnames: [x]", "images/train/1.png", "images/train/2.png")
    monkeypatch.chdir(tmp_path / "decoy")
    assert _paths(folder) == {"train": ["images/train/1.png"]}


def test_clutter_is_ignored_and_other_files_are_listed(tmp_path):
    folder = _dataset(tmp_path, "train: images\nnames: [a]", "images/1.png")
    for name in ("._1.png", ".DS_Store", "Thumbs.db", "classes.txt", "phone.heic"):
        (folder / "images" / name).write_bytes(b"?")
    layout = read_layout(folder)
    assert [str(path) for path in layout.splits[Split.TRAIN]] == ["images/1.png"]
    assert [str(path) for path in layout.others] == ["images/phone.heic"]


def test_linked_folders_give_the_same_pictures_as_plain_ones(tmp_path):
    plain = read_layout(write_mini_dataset(tmp_path / "plain").folder)
    linked = read_layout(write_mini_dataset(tmp_path / "linked", images_symlink=True).folder)
    assert linked.splits == plain.splits


def test_a_link_to_nothing_is_named(tmp_path):
    folder = _dataset(tmp_path, "train: images\nnames: [a]", "images/1.png")
    (folder / "images/2.png").symlink_to("gone.png")
    with pytest.raises(DatasetError, match=r"2\.png.*gone\.png"):
        read_layout(folder)


def test_a_link_on_a_parent_folder_ends(tmp_path):
    folder = _dataset(tmp_path, "train: images\nnames: [a]", "images/1.png")
    (folder / "images/again").symlink_to(folder / "images", target_is_directory=True)
    assert _paths(folder) == {"train": ["images/1.png"]}


@pytest.mark.parametrize(
    ("name", "counts"),
    [("neu-det-yolo", (288, 72)), ("deeppcb-yolo", (240, 60)), ("magnetic-tile-yolo", (193, 50))],
)
def test_shared_sets_as_they_are(name, counts):
    splits = read_layout(shared_data() / name).splits
    assert (len(splits[Split.TRAIN]), len(splits[Split.VAL])) == counts


@pytest.mark.parametrize("way", ["set", "../here/set", "./set/../set", "link"])
def test_how_the_folder_is_named_changes_nothing(way, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    _dataset(here / "set", "train: images/train\nval: images/val\nnames: [a]", "images/train/1.png", "images/val/2.png")
    (here / "link").symlink_to(here / "set")
    monkeypatch.chdir(here)
    assert _paths(Path(way)) == {"train": ["images/train/1.png"], "val": ["images/val/2.png"]}
