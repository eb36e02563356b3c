"""What the rules need beyond the rows themselves: copies, groups and counts over a whole scan. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import pandas as pd

from tasks.scan import DatasetScan

BOX_COLUMNS = ("picture", "split", "file", "centre_x", "centre_y", "width", "height")
_PICTURE_COLUMNS = (
    "short_side_px", "label_shared_with", "copy_in_other_split", "other_split", "copy_in_split",
    "copy_with_other_labels", "group_in_other_split",
)  # fmt: skip
_LABEL_COLUMNS = ("short_side_px", "other_class", "other_line")

Row = dict[Hashable, Any]


def picture_table(pictures: pd.DataFrame) -> pd.DataFrame:
    """The picture rows with short side, copies, shared label files and groups that cross splits."""
    rows: list[Row] = pictures.to_dict("records")
    for row in rows:
        row.update(dict.fromkeys(_PICTURE_COLUMNS), short_side_px=_short_side(row))
    for row, other in _repeats(rows, "sha256"):
        _note_copy(row, other)
    for row, other in _repeats(rows, "label_path"):
        if row["path"] != other["path"]:
            row["label_shared_with"] = other["path"]
    for row, other in _repeats([row for row in rows if pd.notna(row["group"])], "group"):
        if row["split"] != other["split"]:
            row["group_in_other_split"] = other["split"]
    return pd.DataFrame(rows, columns=[*pictures.columns, *_PICTURE_COLUMNS])


def _short_side(row: Row) -> float | None:
    return min(row["width_px"], row["height_px"]) if pd.notna(row["width_px"]) else None


def _repeats(rows: list[Row], *columns: str) -> Iterator[tuple[Row, Row]]:
    """Pairs (row, an earlier row with the same values; one of another split where there is one)."""
    first: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        earlier = first.setdefault(tuple(row[column] for column in columns), {})
        elsewhere = [other for split, other in earlier.items() if split != row["split"]]
        if earlier:
            yield row, (elsewhere or list(earlier.values()))[0]
        earlier.setdefault(row["split"], row)


def _note_copy(row: Row, other: Row) -> None:
    if row["split"] == other["split"]:
        row["copy_in_split"] = other["path"]
    else:
        row.update(copy_in_other_split=other["path"], other_split=other["split"])
    if row["labels_key"] != other["labels_key"]:
        row["copy_with_other_labels"] = other["path"]


def label_table(labels: pd.DataFrame) -> pd.DataFrame:
    """The label rows with short side in pixels and, for one box with two classes, the other row."""
    rows: list[Row] = labels.to_dict("records")
    for row in rows:
        row.update(dict.fromkeys(_LABEL_COLUMNS), short_side_px=_short_side(row))
    for row, other in _repeats([row for row in rows if pd.notna(row["class_id"])], *BOX_COLUMNS):
        row.update(other_class=f"{other['class_id']:.0f}", other_line=str(other["line"]))
    return pd.DataFrame(rows, columns=[*labels.columns, *_LABEL_COLUMNS])


def count_boxes(scan: DatasetScan) -> dict[str, dict[str, int]]:
    """Boxes per class name and split, zeros included."""
    boxes = scan.labels[scan.labels["class_id"].notna()]
    counted = boxes.groupby(["class_id", "split"]).size().to_dict()
    return {
        name: {split.value: int(counted.get((number, split.value), 0)) for split in scan.layout.splits}
        for number, name in enumerate(scan.layout.class_names)
    }


def count_pictures(scan: DatasetScan) -> dict[str, dict[str, int]]:
    """Pictures and boxes per split: pictures, labelled, empty, missing, boxes."""
    counts: dict[str, dict[str, int]] = {}
    for split in scan.layout.splits:
        rows = scan.pictures[scan.pictures["split"] == split.value]
        states = rows["label_state"].value_counts()
        counts[split.value] = {
            "pictures": len(rows),
            **{state: int(states.get(state, 0)) for state in ("labelled", "empty", "missing")},
            "boxes": int(rows["boxes"].sum()),
        }
    return counts


def dataset_table(scan: DatasetScan) -> pd.DataFrame:
    """One row per fact about the dataset as a whole; each row fills the column of its own fact."""
    yaml_name = "data.yaml"
    facts: list[dict[str, object]] = []
    for split, counts in count_pictures(scan).items():
        share = counts["missing"] / counts["pictures"] if counts["pictures"] else None
        facts.append({"file": f"{yaml_name}, {split}", "split_pictures": counts["pictures"],
                      "split_boxes": counts["boxes"], "unlabelled_share": share})  # fmt: skip
    for name, per_split in count_boxes(scan).items():
        facts += [
            {"file": f"{yaml_name}, class {name} in {split}", "class_instances": count}
            for split, count in per_split.items()
        ]
    facts += [{"file": str(path), "orphan_label": str(path)} for path in scan.orphan_labels]
    facts += [{"file": str(path), "unexpected_file": str(path)} for path in scan.layout.others]
    facts += [{"file": yaml_name, "path_note": note} for note in scan.layout.notes]
    columns = ["file", "split_pictures", "split_boxes", "class_instances", "unlabelled_share", "orphan_label",
               "unexpected_file", "path_note"]  # fmt: skip
    return pd.DataFrame(facts, columns=columns)
