from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

import cv2
import numpy as np
import pytest

from builders import LIMITS, Image, encode, encode_16bit, encode_mode, noisy_plate, plate, write_mini_dataset
from data_contracts.base import sha256_of
from data_contracts.errors import DatasetError
from tasks.scan import scan_dataset
from tasks.scanning.picture_facts import PictureFacts, jpeg_end, picture_facts, read_picture
from tasks.scanning.scan_rows import group_key, read_labels

JPEG = encode(plate(), "jpeg")
PICTURES = {
    "turned by EXIF": (
        encode(plate((80, 40)), "jpeg", orientation=6), {"width_px": 40, "height_px": 80, "exif_orientation": 6}
    ),
    "grey": (encode_mode(plate(), "L"), {"mode": "L", "width_px": 64, "bit_depth": 8}),
    "one bit": (encode_mode(plate(), "1"), {"mode": "1", "bit_depth": 1}),
    "16 bits": (encode_16bit(noisy_plate()[..., 0].astype(np.uint16) * 257), {"mode": "I;16", "bit_depth": 16}),
    "colour of 16 bits": (encode_16bit(noisy_plate().astype(np.uint16) * 257, ".tiff"), {"bit_depth": 16}),
    "flat": (
        encode(plate(background=(50, 50, 50))),
        {"brightness": 50, "contrast": 0, "sharpness": 0, "perceptual_hash": "0" * 16, "thumbnail": b"2" * 1024},
    ),
    "bytes behind the end": (JPEG + b"\0" * 16, {"jpeg_end": "trailing"}),
    "empty file": (b"", {"rule": "picture_unsupported"}),
    "cut": (encode(noisy_plate())[:-400], {"rule": "picture_undecodable"}),
    "text": (b"<html>404</html>", {"rule": "picture_unsupported"}),
    "too large": (encode(plate((200, 200))), {"rule": "picture_too_large"}),
}  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), PICTURES.values(), ids=PICTURES)
def test_what_a_picture_row_says(data, expected, tmp_path):
    folder = write_mini_dataset(tmp_path / "d", counts={"train": 1}).folder
    (folder / "images/train/p0.png").write_bytes(data)
    limits = type(LIMITS)(max_bytes=LIMITS.max_bytes, max_pixels=100 * 100)
    row = scan_dataset(folder, limits).pictures.iloc[0]
    assert {name: row[name] for name in expected} == expected


def stripes(period: int, low: int, high: int) -> Image:
    """Upright stripes of two grey levels, each `period` pixels wide."""
    levels = np.where(np.arange(128) // period % 2, high, low).astype(np.uint8)
    return np.repeat(np.tile(levels, (128, 1))[..., None], 3, axis=2)


def look(image: Image) -> PictureFacts:
    return picture_facts(encode(image), PictureFacts(0, ""), LIMITS)


def test_brightness_contrast_and_sharpness_are_those_of_the_grey_levels():
    """Stripes 4 px wide: the Laplacian is 0, +40 or -40, each edge on both sides; at the border it sees no edge."""
    facts = look(stripes(4, 80, 120))
    assert (facts.brightness, facts.contrast) == (100, 20)
    edges = 2 * 31 / 128
    assert facts.sharpness == pytest.approx(40**2 * edges, rel=1e-3)
    assert look(stripes(16, 80, 120)).sharpness < facts.sharpness / 3


def test_the_hash_follows_what_is_seen():
    shapes = cv2.resize(noisy_plate((8, 6)), (160, 120), interpolation=cv2.INTER_LINEAR)
    mirrored = np.ascontiguousarray(shapes[:, ::-1])
    upside_down = picture_facts(encode(shapes[::-1, ::-1].copy(), "jpeg", orientation=3), PictureFacts(0, ""), LIMITS)
    again = picture_facts(encode(shapes, "jpeg", quality=60), PictureFacts(0, ""), LIMITS)
    assert bits_apart(look(shapes), again) <= 2
    assert bits_apart(look(shapes), upside_down) <= 2
    assert bits_apart(look(shapes), look(mirrored)) > 12


def bits_apart(one: PictureFacts, other: PictureFacts) -> int:
    return (int(one.perceptual_hash, 16) ^ int(other.perceptual_hash, 16)).bit_count()


def test_a_file_over_the_limit_is_hashed_but_not_held(tmp_path):
    path, limits = tmp_path / "big.png", type(LIMITS)(max_bytes=1000, max_pixels=10**6)
    path.write_bytes(encode(noisy_plate()) + bytes(3 * 2**20))
    facts = read_picture(path, limits, {})
    assert facts.rule == "picture_too_large"
    assert (facts.size_bytes, facts.sha256) == (path.stat().st_size, sha256_of(path.read_bytes()))


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("make", [pipe, link_to_itself, Path.mkdir, lambda path: None])
def test_what_cannot_be_read_is_a_row_and_is_tried_again(make, tmp_path):
    make(tmp_path / "odd.png")
    facts = read_picture(tmp_path / "odd.png", LIMITS, {})
    assert (facts.rule, facts.expected) == ("picture_undecodable", "a file that can be read")


def test_a_pipe_in_a_dataset_does_not_hold_the_scan(tmp_path):
    folder = write_mini_dataset(tmp_path / "d").folder
    os.mkfifo(folder / "images/train/odd.png")
    for _ in range(2):
        pictures = scan_dataset(folder, LIMITS, cache=tmp_path / "scans").pictures.set_index("path")
        assert pictures.loc["images/train/odd.png", "got"] == "it is no plain file"


def test_names_that_are_no_text_are_named(tmp_path):
    folder = write_mini_dataset(tmp_path / "d").folder
    for number in (254, 255):
        Path(os.fsdecode(os.fsencode(folder / "images/train") + b"/a%c.png" % number)).write_bytes(encode(plate()))
    with pytest.raises(DatasetError) as caught:
        scan_dataset(folder, LIMITS)
    assert len(caught.value.problems) == 2
    assert "xff.png" in str(caught.value)


def test_a_label_file_of_many_megabytes_is_not_read(tmp_path):
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.truncate(2**30)
    (row,) = read_labels(path, 1).rows
    assert row[7:] == ("label_encoding", "a label file of at most 16777216 bytes", "1073741824 bytes")


def test_label_rows_carry_values_pixels_and_problems(tmp_path):
    folder = write_mini_dataset(tmp_path / "d", counts={"train": 1}, wh=(200, 100)).folder
    (folder / "labels/train/p0.txt").write_text(
        "\n1 0.5 0.5 0.1 0.1\n7 0.5 0.5 0.1 0.1\n0 1 0.5 0.1 0.1 0.5 0.6 0.1 0.9\n"
    )
    labels = scan_dataset(folder, LIMITS).labels
    assert labels["line"].tolist() == [2, 3, 4]
    assert labels.loc[0, ["class_id", "width_px", "height_px"]].tolist() == [1, 20, 10]
    assert labels["rule"].tolist()[1:] == ["class_id", "label_columns"]


def test_two_remarks_on_one_row_are_two_rows_but_one_box(tmp_path):
    folder = write_mini_dataset(tmp_path / "d", counts={"train": 1}).folder
    (folder / "labels/train/p0.txt").write_text("0 0.9 0.5 0.4 0.1 0.99\n")
    labels = scan_dataset(folder, LIMITS).labels
    assert labels["rule"].tolist() == ["label_confidence", "box_clipped"]
    assert labels["class_id"].notna().sum() == 1


def test_label_states_are_told_apart(tmp_path):
    mini = write_mini_dataset(tmp_path / "d", counts={"train": 5})
    (mini.folder / "labels/train/p0.txt").unlink()
    states = scan_dataset(mini.folder, LIMITS).pictures.set_index("path")["label_state"]
    assert states["images/train/p0.png"] == "missing"
    assert states["images/train/p1.png"] == "labelled"
    assert states["images/train/p4.png"] == "empty"


def test_a_picture_that_is_listed_as_background_needs_no_label_file(tmp_path):
    folder = write_mini_dataset(tmp_path / "d", counts={"train": 5}).folder
    for name in ("p0", "p4"):
        (folder / f"labels/train/{name}.txt").unlink()
    (folder / "backgrounds.txt").write_text("images/train/p1.png\nimages/train/p4.png\n")
    states = scan_dataset(folder, LIMITS).pictures["label_state"].tolist()
    assert states == ["missing", "labelled", "labelled", "labelled", "listed"]


@pytest.mark.parametrize("option", [{}, {"images_symlink": True}], ids=["plain", "linked folder"])
def test_links_keep_the_labelled_count(option, tmp_path):
    folder = write_mini_dataset(tmp_path / "d", **option).folder
    assert (scan_dataset(folder, LIMITS).pictures["label_state"] == "labelled").sum() == 10


@pytest.mark.parametrize("dialect", ["plain", "bom", "crlf"])
def test_harmless_dialects_give_the_same_boxes(dialect, tmp_path):
    plain = scan_dataset(write_mini_dataset(tmp_path / "a").folder, LIMITS)
    other = scan_dataset(write_mini_dataset(tmp_path / "b", label_dialect=dialect).folder, LIMITS)
    assert other.pictures["labels_key"].tolist() == plain.pictures["labels_key"].tolist()
    assert other.labels["rule"].notna().sum() == 0


def test_orphan_labels_are_found_and_clutter_is_not(tmp_path):
    folder = write_mini_dataset(tmp_path / "d").folder
    for name in ("lost.txt", "classes.txt", "._p0.txt"):
        (folder / "labels/train" / name).write_bytes(b"\xb0")
    assert scan_dataset(folder, LIMITS).orphan_labels == (PurePosixPath("labels/train/lost.txt"),)


def test_a_label_of_a_picture_that_no_split_names_is_no_orphan(tmp_path):
    folder = write_mini_dataset(tmp_path / "d").folder
    (folder / "train.txt").write_text("images/train/p0.png\nimages/train/p1.png\n")
    data = (folder / "data.yaml").read_text()
    (folder / "data.yaml").write_text(data.replace("images/train", "train.txt"))
    (folder / "labels/train/lost.txt").touch()
    assert scan_dataset(folder, LIMITS).orphan_labels == (PurePosixPath("labels/train/lost.txt"),)


NO_FILES = {
    "pipe": (pipe, "no plain file"),
    "folder": (Path.mkdir, "a folder"),
    "dead link": (lambda path: path.symlink_to("gone"), "a link to gone, where no file is"),
    "link to itself": (link_to_itself, "a link to "),
}


@pytest.mark.parametrize(("make", "words"), NO_FILES.values(), ids=NO_FILES)
def test_what_lies_in_the_place_of_a_label_file_is_no_missing_label(make, words, tmp_path):
    folder = write_mini_dataset(tmp_path / "d").folder
    label = folder / "labels/train/p0.txt"
    label.unlink()
    assert _state(folder, tmp_path) == ("missing", None)
    make(label)
    for _ in range(2):
        state, got = _state(folder, tmp_path)
        assert state == "empty"
        assert words in str(got)
    label.rmdir() if label.is_dir() else label.unlink()
    assert _state(folder, tmp_path) == ("missing", None)


def _state(folder: Path, home: Path) -> tuple[str, object]:
    """Label state of the first picture, and what its label file has instead of rows, by a scan with kept tables."""
    scan = scan_dataset(folder, LIMITS, cache=home / "scans")
    rows = scan.labels[scan.labels["file"] == "labels/train/p0.txt"]
    state = scan.pictures.set_index("path").loc["images/train/p0.png", "label_state"]
    return state, next(iter(rows.loc[rows["rule"] == "label_unreadable", "got"]), None)


def test_jpeg_ends():
    assert [jpeg_end(data) for data in (JPEG, JPEG + b"\0", JPEG[:-2], encode(plate()))] == [
        "ok",
        "trailing",
        "missing",
        None,
    ]


def test_group_key_is_the_first_group_or_the_match():
    picture = PurePosixPath("images/train/lot3-part7_02.png")
    assert group_key(picture, re.compile(r"part(\d+)")) == "7"
    assert group_key(picture, re.compile(r"lot\d+")) == "lot3"
    assert group_key(picture, re.compile("none")) is None
