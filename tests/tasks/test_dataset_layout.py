from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from builders import encode, plate, shared_data, write_mini_dataset
from data_contracts.dataset import Split
from data_contracts.errors import DatasetError
from tasks.datasets.dataset_layout import read_layout


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
    "Windows path inside": ("train\\images", "val: v/images", "train/images/1.png", "v/images/2.png"),
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
    "missing folder": ("train: pictures\nnames: [a]", "'pictures'.*pictures are in images"),
    "outside the folder": ("train: ../outside\nnames: [a]", "outside of it"),
    "path outside": ("path: ../outside\ntrain: images\nnames: [a]", "field path"),
    "list of missing pictures": ("train: list.txt\nnames: [a]", "1 of 2 missing"),
    "not YAML": ("train: [", "YAML"),
    "a list": ("- a", "train, val and names"),
    "nothing in it": ("", "got nothing"),
    "a tab": ("train: images\nnames:\n\t- a", r"line 3.*tab"),
    "a field twice": ("train: images\nnames: [a]\nnames: [b]", r"line 3.*'names'.*second time"),
    "an id twice": ("train: images\nnames: {0: a, 0: b}", r"line 2.*'0'.*second time"),
    "ids with a gap": ("train: images\nnames: {0: a, 2: b}", "0 to 1.*the ids 0, 2"),
    "names in a file": ("train: images\nnames: obj.names", "'obj.names'.*names themselves"),
    "a number of names": ("train: images\nnames: 3", "the text '3'"),
    "names as mappings": ("train: images\nnames: [{id: 0, name: a}]", "list of class names"),
    "a null for a name": ("train: images\nnames: [a, ~]", "no name for the id 1"),
    "a space behind a name": ("train: images\nnames: [a, 'a ']", "'a ' for the id 1, with spaces"),
    "a name of two lines": ('train: images\nnames: ["a\\nb"]', "characters that do not show"),
    "two documents": ("train: images\nnames: [a]\n---\nb: c", "line 3.*second document"),
    "an empty name": ("train: images\nnames: [a, '', b]", "no name for the id 1"),
    "the same name twice, by id": ("train: images\nnames: {0: a, 1: b, 2: a}", "'a' twice, for the ids 0 and 2"),
    "no name at all": ("train: images\nnames: []", "no name at all"),
    "key points": ("train: images\nkpt_shape: [4, 2]\nnames: [a]", "key points"),
    "path is a list": ("path: [a]\ntrain: images\nnames: [a]", "field path"),
    "aliases without end": (
        "a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b]\ntrain: images\nnames: [*c, *c]",
        "list of class names",
    ),
    "list that is no text": ("train: bytes.txt\nnames: [a]", "bytes.txt.*UTF-8"),
    "empty list": ("train: empty.txt\nnames: [a]", "an empty list"),
}


@pytest.mark.parametrize(("yaml_text", "words"), REFUSED.values(), ids=REFUSED)
def test_faults_are_named(yaml_text, words, tmp_path):
    (tmp_path / "outside").mkdir()
    folder = _dataset(tmp_path / "set", yaml_text, "images/1.png")
    (folder / "list.txt").write_text("images/1.png\n/elsewhere/2.png\n")
    (folder / "bytes.txt").write_bytes(b"\xff\xd8")
    (folder / "empty.txt").write_text("\n")
    with pytest.raises(DatasetError, match=words):
        read_layout(folder)


def test_no_yaml_file_and_two_of_them(tmp_path):
    with pytest.raises(DatasetError, match=r"data\.yaml"):
        read_layout(tmp_path)
    _dataset(tmp_path, "train: images\nnames: [a]", "images/1.png")
    (tmp_path / "dataset.yaml").write_text("train: images\nnames: [a]")
    with pytest.raises(DatasetError, match="Keep one"):
        read_layout(tmp_path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("train: images\nnames: [a]".encode("utf-16"), "UTF-16"),
        ("train: images\nnames: [Ma\u00df]".encode("latin-1"), "0xdf in line 2"),
        (b"train: images\nnames: [a]\n" + b"#" * 2**21, "a larger file"),
    ],
    ids=["UTF-16", "Latin-1", "huge"],
)
def test_a_file_that_is_no_yaml_text(data, words, tmp_path):
    (tmp_path / "data.yaml").write_bytes(data)
    with pytest.raises(DatasetError, match=words):
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


def test_hidden_and_tool_folders_are_left_alone(tmp_path):
    hidden = ("images/.ipynb_checkpoints/1-checkpoint.png", "images/__MACOSX/1.png", "images/@eaDir/1.png")
    folder = _dataset(tmp_path, "train: images\nnames: [a]", "images/1.png", *hidden)
    assert _paths(folder) == {"train": ["images/1.png"]}


def test_endings_in_capitals_are_read_for_pictures_and_told_for_labels(tmp_path):
    folder = _dataset(tmp_path, "train: images/a\nval: images/b\nnames: [a]", "images/a/1.JPG", "images/b/2.Png")
    (folder / "labels/a").mkdir(parents=True)
    for name in ("1.TXT", "1.xml", "1.txt", "classes.txt", ".DS_Store", "train.cache"):
        (folder / "labels/a" / name).touch()
    layout = read_layout(folder)
    assert _paths(folder) == {"train": ["images/a/1.JPG"], "val": ["images/b/2.Png"]}
    assert [str(path) for path in layout.others] == ["labels/a/1.TXT", "labels/a/1.xml"]


def test_pictures_that_no_split_names_are_counted_by_folder(tmp_path):
    pictures = ("images/a/1.png", "images/b/2.png", "images/b/3.png", "new/4.JPG", ".cache/5.png", "1.png")
    folder = _dataset(tmp_path, "train: images/a\nval: val.txt\nnames: [a]", *pictures)
    (folder / "val.txt").write_text("images/b/2.png\n")
    (folder / "new/._4.jpg").touch()
    assert {str(path): count for path, count in read_layout(folder).unused.items()} == {".": 1, "images/b": 1, "new": 1}


def test_what_a_link_inside_the_dataset_leads_to_is_used(tmp_path):
    folder = _dataset(tmp_path, "train: images/train\nnames: [a]", "store/raw/1.png")
    (folder / "images").mkdir()
    (folder / "images/train").symlink_to("../store/raw")
    assert _paths(folder) == {"train": ["images/train/1.png"]}
    assert read_layout(folder).unused == {}


def test_labels_beside_pictures_are_no_other_files(tmp_path):
    folder = _dataset(tmp_path, "train: train\nnames: [a]", "train/1.png")
    for name in ("1.txt", "2.TXT"):
        (folder / "train" / name).touch()
    assert [str(path) for path in read_layout(folder).others] == ["train/2.TXT"]


def test_labels_beside_pictures_that_are_looked_for_elsewhere_are_counted(tmp_path):
    folder = _dataset(tmp_path, "train: images/train\nnames: [a]", "images/train/1.png", "images/train/2.png")
    for name in ("1.txt", "notes.txt"):
        (folder / "images/train" / name).write_text("0 .5 .5 .1 .1")
    assert read_layout(folder).beside == {PurePosixPath("images/train"): 1}


def test_a_list_may_be_relative_to_the_dataset(tmp_path):
    folder = _dataset(tmp_path, "train: lists/train.txt\nnames: [a]", "images/1.png", "lists/x/2.png")
    (folder / "lists/train.txt").write_text("images/1.png\nx/2.png\nx/._2.png\n")
    (folder / "lists/x/._2.png").touch()
    assert _paths(folder) == {"train": ["images/1.png", "lists/x/2.png"]}


@pytest.mark.parametrize(
    "text",
    ["images/1.png\nimages/gone.png\n", "\ufeff# checked\r\nimages\\1.png\r\n\r\n./images/gone.png\r\n"],
    ids=["plain", "from Windows"],
)
def test_backgrounds_are_listed_by_path(text, tmp_path):
    folder = _dataset(tmp_path, "train: images\nnames: [a]", "images/1.png")
    (folder / "backgrounds.txt").write_bytes(text.encode())
    assert sorted(map(str, read_layout(folder).backgrounds)) == ["images/1.png", "images/gone.png"]


def test_a_list_of_backgrounds_that_is_no_text_is_named(tmp_path):
    folder = _dataset(tmp_path, "train: images\nnames: [a]", "images/1.png")
    (folder / "backgrounds.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DatasetError, match=r"backgrounds\.txt.*UTF-8"):
        read_layout(folder)


def test_linked_folders_give_the_same_pictures_as_plain_ones(tmp_path):
    plain = read_layout(write_mini_dataset(tmp_path / "plain").folder)
    linked = read_layout(write_mini_dataset(tmp_path / "linked", images_symlink=True).folder)
    assert linked.splits == plain.splits
    assert linked.unused == plain.unused == {}


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
