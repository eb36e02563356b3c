from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest

from builders import LIMITS, encode, encode_mode, noisy_plate, plate, write_mini_dataset
from tasks.scan import group_key, jpeg_end, scan_dataset

JPEG = encode(plate(), "jpeg")
PICTURES = {
    "turned by EXIF": (
        encode(plate((80, 40)), "jpeg", orientation=6), {"width_px": 40, "height_px": 80, "exif_orientation": 6}
    ),
    "grey": (encode_mode(plate(), "L"), {"mode": "L", "width_px": 64}),
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
