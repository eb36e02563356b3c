"""What the rules need beyond the rows themselves: copies, groups and counts over a whole scan. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tasks.scan import DatasetScan

BOX_COLUMNS = ["picture", "split", "file", "centre_x", "centre_y", "width", "height"]
LABEL_STATES = ("labelled", "empty", "listed", "missing")
_JPEG_FAULTS = {"trailing": "more bytes behind it", "missing": "none: the last bytes of the file are lost"}

Positions = npt.NDArray[np.int64]


def picture_table(scan: DatasetScan) -> pd.DataFrame:
    """The picture rows with short side, copies, shared label files, groups and near copies that cross splits.

    A picture that two splits name is compared with others once.
    """
    pictures = scan.pictures.reset_index(drop=True)
    is_first = ~pictures["path"].duplicated().to_numpy()
    wrongly_listed = pictures["path"].isin({str(path) for path in scan.layout.backgrounds}) & (pictures["boxes"] > 0)
    facts = {
        "place": pictures["path"],
        "short_side_px": pictures[["width_px", "height_px"]].min(axis=1, skipna=False),
        "jpeg_fault": pictures["jpeg_end"].map(_JPEG_FAULTS),
        "listed_but_labelled": pictures["boxes"].where(wrongly_listed),
        "label_shared_with": _other(pictures, "label_path", is_first)["path"],
        "group_in_other_split": _elsewhere(_other(pictures, "group", is_first), pictures)["split"],
        **_copy_facts(pictures, is_first),
        **_near_facts(pictures, scan.near, is_first),
    }
    return pictures.drop(columns="thumbnail", errors="ignore").assign(**facts)


def _other(pictures: pd.DataFrame, column: str, is_first: npt.NDArray[np.bool_]) -> pd.DataFrame:
    """Per row an earlier row with the same value, of another split where there is one; all missing where none is."""
    positions = np.full(len(pictures), -1, np.int64)
    rows = np.flatnonzero(is_first & pictures[column].notna() & pictures[column].duplicated(keep=False))
    if len(rows):
        positions[rows] = _earlier(pictures[column].iloc[rows], pictures["split"].iloc[rows], rows)
    return _take(pictures[["path", "split", "labels_key"]], positions)


def _earlier(values: pd.Series[Any], splits: pd.Series[Any], rows: Positions) -> Positions:
    """Positions among `rows`, -1 for none: the first row of another split if it comes before, else of the own one."""
    keys, split_ids = pd.factorize(values)[0], pd.factorize(splits)[0]
    never = np.iinfo(np.int64).max
    first = np.full((keys.max() + 1, split_ids.max() + 1), never)
    np.minimum.at(first, (keys, split_ids), rows)
    own, elsewhere = first[keys, split_ids], first[keys]
    elsewhere[np.arange(len(rows)), split_ids] = never
    nearest = elsewhere.min(axis=1)
    return np.where(nearest < rows, nearest, np.where(own < rows, own, -1))


def _take(frame: pd.DataFrame, positions: Positions) -> pd.DataFrame:
    """The rows at `positions`, all missing where -1."""
    return frame.reset_index(drop=True).astype(object).reindex(positions).reset_index(drop=True)


def _elsewhere(others: pd.DataFrame, pictures: pd.DataFrame) -> pd.DataFrame:
    """The other rows that are of another split; all missing where they are not."""
    crosses = others["split"].notna() & (others["split"] != pictures["split"])
    return others[crosses].reindex(others.index)


def _copy_facts(pictures: pd.DataFrame, is_first: npt.NDArray[np.bool_]) -> dict[str, pd.Series[Any]]:
    others = _other(pictures, "sha256", is_first)
    elsewhere = _elsewhere(others, pictures)
    differs = others["labels_key"].notna() & (others["labels_key"] != pictures["labels_key"])
    return {
        "copy_in_other_split": elsewhere["path"],
        "other_split": elsewhere["split"],
        "copy_in_split": others["path"].where(elsewhere["path"].isna()),
        "copy_with_other_labels": others["path"].where(differs),
    }


def _near_facts(
    pictures: pd.DataFrame, pairs: pd.DataFrame, is_first: npt.NDArray[np.bool_]
) -> dict[str, pd.Series[Any]]:
    """On the later of two near copies in different splits: the other one and its split."""
    positions = np.full(len(pictures), -1, np.int64)
    first, second = pairs["first"].to_numpy(np.int64), pairs["second"].to_numpy(np.int64)
    splits = pictures["split"].to_numpy()
    crossing = (splits[first] != splits[second]) & is_first[first] & is_first[second]
    positions[second[crossing]] = first[crossing]
    others = _take(pictures[["path", "split"]], positions)
    return {"near_copy": others["path"], "near_copy_split": others["split"]}


def label_table(labels: pd.DataFrame, class_names: tuple[str, ...] = ()) -> pd.DataFrame:
    """The label rows with short side in pixels, the id of a class written by name, and the other row of a box twice."""
    labels = labels.reset_index(drop=True)
    boxes = labels[labels["class_id"].notna()]
    boxes = boxes[boxes.duplicated(BOX_COLUMNS, keep=False)]
    rows = boxes.groupby(BOX_COLUMNS, sort=False)[["class_id", "line"]]
    first = rows.transform("first")[boxes.duplicated(BOX_COLUMNS)]
    return labels.assign(
        place=labels["file"] + ":" + labels["line"].astype(str),
        short_side_px=labels[["width_px", "height_px"]].min(axis=1, skipna=False),
        other_class=first["class_id"].reindex(labels.index),
        other_line=first["line"].reindex(labels.index),
        got=_with_ids(labels, class_names),
    )


def _with_ids(labels: pd.DataFrame, class_names: tuple[str, ...]) -> pd.Series[Any]:
    """What the rows hold; where that is the name of a class, with its id."""
    ids = {name.lower(): f", whose id is {number}" for number, name in enumerate(class_names)}
    named = labels.loc[labels["rule"] == "class_name", "got"]
    words = {row: got + ids.get(got.removeprefix("the word ").strip("\"'").lower(), "") for row, got in named.items()}
    return labels["got"].astype(object).where(~labels.index.isin(named.index), pd.Series(words, dtype=object))


def without(scan: DatasetScan, pictures: Collection[str]) -> DatasetScan:
    """The scan as if `pictures`, by path, were not there."""
    if not pictures:
        return scan
    keeps_picture, keeps_label = ~scan.pictures["path"].isin(pictures), ~scan.labels["picture"].isin(pictures)
    return replace(scan, pictures=scan.pictures[keeps_picture], labels=scan.labels[keeps_label])


def count_boxes(scan: DatasetScan) -> dict[str, dict[str, int]]:
    """Boxes per class name and split, zeros included."""
    boxes = scan.labels[scan.labels["class_id"].notna()]
    counted = boxes.groupby(["class_id", "split"]).size().to_dict()
    return {
        name: {split.value: int(counted.get((number, split.value), 0)) for split in scan.layout.splits}
        for number, name in enumerate(scan.layout.class_names)
    }


def count_pictures(scan: DatasetScan) -> dict[str, dict[str, int]]:
    """Pictures and boxes per split: pictures, labelled, empty, listed, missing, boxes."""
    return {split.value: _count(scan.pictures[scan.pictures["split"] == split.value]) for split in scan.layout.splits}


def _count(rows: pd.DataFrame) -> dict[str, int]:
    states = rows["label_state"].value_counts()
    counted = {state: int(states.get(state, 0)) for state in LABEL_STATES}
    return {"pictures": len(rows), **counted, "boxes": int(rows["boxes"].sum())}
