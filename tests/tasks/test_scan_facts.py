from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_contracts.dataset import Split
from scan_tables import Made, scan_of
from tasks.scan import DatasetScan
from tasks.scanning import near_duplicates
from tasks.validation import scan_facts
from tasks.validation.dataset_facts import dataset_table
from tasks.validation.scan_facts import count_pictures, label_table, picture_table, without

BOX, OTHER = (0, 0.5, 0.5, 0.2, 0.2), (1, 0.5, 0.5, 0.2, 0.2)


def _row(scan: DatasetScan, path: str) -> pd.Series:
    return picture_table(scan).set_index("path").loc[path]


def test_a_copy_names_the_first_one_of_another_split():
    scan = scan_of(
        Made("images/train/a.png", [BOX], "x"), Made("images/train/b.png", [BOX], "x"),
        Made("images/val/c.png", [OTHER], "x"), Made("images/val/d.png", [BOX], "y"),
    )  # fmt: skip
    assert _row(scan, "images/train/b.png")["copy_in_split"] == "images/train/a.png"
    crossing = _row(scan, "images/val/c.png")
    assert (crossing["copy_in_other_split"], crossing["other_split"]) == ("images/train/a.png", "train")
    assert crossing["copy_with_other_labels"] == "images/train/a.png"
    assert pd.isna(crossing["copy_in_split"])
    for path in ("images/train/a.png", "images/val/d.png"):
        row = _row(scan, path)
        assert row[["copy_in_split", "copy_in_other_split", "copy_with_other_labels"]].isna().all()


def _earlier_by_hand(rows: list[tuple[str, str]]) -> list[int]:
    """The same question, row by row: the first earlier row of another split, else of the own one, else -1."""
    found = []
    for at, (value, split) in enumerate(rows):
        earlier = [n for n in range(at) if rows[n][0] == value]
        elsewhere = [n for n in earlier if rows[n][1] != split]
        found.append((elsewhere or earlier or [-1])[0])
    return found


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["train", "val", "test"])), min_size=1, max_size=12))
def test_earlier_rows_are_found_as_by_hand(rows):
    values, splits = pd.Series([value for value, _ in rows]), pd.Series([split for _, split in rows])
    found = scan_facts._earlier(values, splits, np.arange(len(rows)))
    assert found.tolist() == _earlier_by_hand(rows)


def test_near_copies_are_told_on_the_later_one_and_across_splits_only(monkeypatch):
    scan = scan_of(*(Made(f"images/{split}/{n}.png") for split in ("train", "val") for n in (1, 2)))
    pairs = pd.DataFrame({"first": [0, 0], "second": [1, 3], "distance": [1, 2]})
    monkeypatch.setattr(near_duplicates, "near_pairs", lambda _: pairs)
    table = picture_table(scan)
    assert table["near_copy"].notna().tolist() == [False, False, False, True]
    assert table.loc[3, ["near_copy", "near_copy_split"]].tolist() == ["images/train/1.png", "train"]
    assert "thumbnail" not in table


def test_a_picture_of_two_splits_is_no_copy_of_itself():
    scan = scan_of(Made("images/train/a.png", [BOX]))
    both = pd.concat([scan.pictures, scan.pictures.assign(split="val")])
    table = picture_table(replace(scan, pictures=both))
    assert table[["copy_in_split", "copy_in_other_split", "label_shared_with"]].isna().all().all()


def test_a_listed_background_with_boxes_is_found():
    scan = scan_of(Made("images/train/a.png", [BOX, OTHER]), Made("images/train/b.png", state="listed"))
    listed = frozenset({PurePosixPath("images/train/a.png"), PurePosixPath("images/train/b.png")})
    scan = replace(scan, layout=replace(scan.layout, backgrounds=listed))
    assert _row(scan, "images/train/a.png")["listed_but_labelled"] == 2
    assert pd.isna(_row(scan, "images/train/b.png")["listed_but_labelled"])


def test_one_box_with_two_classes_names_the_other_row():
    table = label_table(scan_of(Made("images/train/a.png", [BOX, OTHER]), Made("images/train/b.png", [BOX])).labels)
    assert table["other_class"].notna().tolist() == [False, True, False]
    assert table.loc[1, ["other_class", "other_line"]].tolist() == [0, 1]


@pytest.mark.parametrize("quarantined", [(), ("images/train/b.png",)], ids=["nothing", "one picture"])
def test_pictures_left_out_take_their_rows_along(quarantined):
    scan = scan_of(Made("images/train/a.png", [BOX]), Made("images/train/b.png", [BOX, OTHER]))
    left = without(scan, quarantined)
    assert count_pictures(left)["train"]["boxes"] == (1 if quarantined else 3)
    assert len(left.labels) == (1 if quarantined else 3)


def _facts(scan: DatasetScan, column: str) -> dict[str, object]:
    table = dataset_table(scan)
    return table[table[column].notna()].set_index("file")[column].to_dict()


def test_the_ids_of_all_labels_are_shifted_by_one():
    """A01: no box of the first class, and the id behind the last one is used."""
    scan = scan_of(*(Made(f"images/train/{n}.png", [OTHER], bad_lines=["2", "5"]) for n in range(3)))
    assert _facts(scan, "shifted_ids") == {"data.yaml, names": "no box of class 0 (pit), and 3 rows with the id 2"}


def test_one_stray_id_is_no_shift():
    scan = scan_of(Made("images/train/a.png", [BOX]), Made("images/train/b.png", bad_lines=["2"]))
    assert _facts(scan, "shifted_ids") == {}


def test_splits_that_name_the_same_pictures_are_told_once():
    scan = scan_of(*(Made(f"images/train/{n}.png", [BOX]) for n in range(3)))
    splits = {Split.TRAIN: scan.layout.splits[Split.TRAIN], Split.VAL: scan.layout.splits[Split.TRAIN][1:]}
    scan = replace(scan, layout=replace(scan.layout, splits=splits))
    words = "2 of 2 pictures are those of train too, such as images/train/1.png"
    assert _facts(scan, "split_overlap") == {"data.yaml, val": words}


def test_the_share_of_unlabelled_pictures_leaves_declared_ones_out():
    states = ("labelled", "empty", "listed", "missing")
    scan = scan_of(*(Made(f"images/train/{state}.png", state=state) for state in states))
    assert _facts(scan, "unlabelled_share") == {"data.yaml, train": 0.25}
    assert count_pictures(scan)["train"] == {"pictures": 4, **dict.fromkeys(states, 1), "boxes": 0}


def test_folders_with_unused_pictures_are_told():
    scan = scan_of(Made("images/train/a.png", [BOX]))
    scan = replace(scan, layout=replace(scan.layout, unused={PurePosixPath("new"): 4}))
    assert _facts(scan, "unused_pictures") == {"new/": 4}
