"""What is asked of a dataset as a whole, as one table: one row per fact, which fills the column of its own rule."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath
from typing import Any

import pandas as pd

from tasks.datasets.dataset_layout import BACKGROUNDS_FILE
from tasks.scan import DatasetScan
from tasks.validation.scan_facts import count_boxes, count_pictures, without

OTHER_PICTURES = frozenset({
    ".avif", ".cr2", ".dng", ".exr", ".gif", ".heic", ".heif", ".j2k", ".jfif", ".jp2", ".jpe", ".jxl", ".nef", ".npy",
    ".pbm", ".pcx", ".pfm", ".pgm", ".pnm", ".ppm", ".psd", ".raw", ".svg", ".tga",
})  # fmt: skip
"""Endings of pictures that are not read."""
_COLUMNS = (
    "file", "split_pictures", "split_boxes", "unlabelled_share", "split_overlap", "class_instances", "shifted_ids",
    "orphan_label", "label_ending", "other_picture", "unexpected_file", "unused_pictures", "unknown_background",
    "labels_beside", "alike_names", "path_note", "quarantined_share", "quarantined_words",
)  # fmt: skip

Fact = dict[str, Any]


def dataset_table(scan: DatasetScan, quarantined: Collection[str] = ()) -> pd.DataFrame:
    """The facts; counts are of what trains, which is not `quarantined`."""
    kept, yaml_name = without(scan, quarantined), scan.layout.yaml_name
    facts = [
        *_split_facts(kept, yaml_name),
        *_overlaps(scan, yaml_name),
        *_class_facts(kept, yaml_name),
        *_alike_names(scan, yaml_name),
        *_shifted_ids(scan, yaml_name),
        *_file_facts(scan),
        *({"file": yaml_name, "path_note": note.removeprefix(f"{yaml_name}: ")} for note in scan.layout.notes),
        *_quarantine_facts(scan, quarantined),
    ]
    table = pd.DataFrame(facts, columns=list(_COLUMNS))
    return table.assign(place=table["file"])


def _split_facts(scan: DatasetScan, yaml_name: str) -> Iterator[Fact]:
    for split, counts in count_pictures(scan).items():
        share = counts["missing"] / counts["pictures"] if counts["pictures"] else None
        yield {
            "file": f"{yaml_name}, {split}",
            "split_pictures": counts["pictures"],
            "split_boxes": counts["boxes"],
            "unlabelled_share": share,
        }


def _overlaps(scan: DatasetScan, yaml_name: str) -> Iterator[Fact]:
    """Pictures that two splits name; the later split is named."""
    earlier: dict[PurePosixPath, str] = {}
    for split, pictures in scan.layout.splits.items():
        if both := [picture for picture in pictures if picture in earlier]:
            words = f"{len(both)} of {len(pictures)} pictures are those of {earlier[both[0]]} too, such as {both[0]}"
            yield {"file": f"{yaml_name}, {split.value}", "split_overlap": words}
        earlier |= {picture: split.value for picture in pictures if picture not in earlier}


def _alike_names(scan: DatasetScan, yaml_name: str) -> Iterator[Fact]:
    """Class names that differ in capitals or spaces only: two spellings of one class, as a rule."""
    spelled: dict[str, list[str]] = {}
    for number, name in enumerate(scan.layout.class_names):
        spelled.setdefault(_alike(name), []).append(f"{name!r} (id {number})")
    for names in spelled.values():
        if len(names) > 1:
            yield {"file": f"{yaml_name}, names", "alike_names": " and ".join(names)}


def _class_facts(scan: DatasetScan, yaml_name: str) -> Iterator[Fact]:
    for name, per_split in count_boxes(scan).items():
        for split, count in per_split.items():
            yield {"file": f"{yaml_name}, class {name} in {split}", "class_instances": count}


def _shifted_ids(scan: DatasetScan, yaml_name: str) -> Iterator[Fact]:
    """Ids that seem to start at 1: the one behind the last is used, and 0 is not."""
    names = scan.layout.class_names
    wrong = scan.labels.loc[scan.labels["rule"] == "class_id", "got"]
    behind = int((pd.to_numeric(wrong, errors="coerce") == len(names)).sum())
    if behind and not (scan.labels["class_id"] == 0).any():
        words = f"no box of class 0 ({names[0]}), and {behind} rows with the id {len(names)}"
        yield {"file": f"{yaml_name}, names", "shifted_ids": words}


def _file_facts(scan: DatasetScan) -> Iterator[Fact]:
    yield from _orphans(scan)
    yield from ({"file": f"{folder}/", "labels_beside": count} for folder, count in sorted(scan.layout.beside.items()))
    for path in scan.layout.others:
        ending = path.suffix.lower()
        column = "label_ending" if ending == ".txt" else "other_picture" if ending in OTHER_PICTURES else ""
        yield {"file": str(path), column or "unexpected_file": path.suffix or "no ending"}
    for folder, count in sorted(scan.layout.unused.items()):
        yield {"file": f"{folder}/", "unused_pictures": count}
    known = {picture for pictures in scan.layout.splits.values() for picture in pictures}
    for path in sorted(scan.layout.backgrounds - known):
        yield {"file": BACKGROUNDS_FILE, "unknown_background": str(path)}


def _orphans(scan: DatasetScan) -> Iterator[Fact]:
    """Label files without a picture; one that a picture without labels may have meant is told with it."""
    if not scan.orphan_labels:
        return
    missing = scan.pictures[scan.pictures["label_state"] == "missing"]
    wanted = dict(zip(map(_alike, missing["label_path"]), missing["path"], strict=True))
    for path in scan.orphan_labels:
        picture = wanted.get(_alike(str(path)))
        meant = f"; {picture} is spelled otherwise (capitals, spaces or composed letters)" if picture else ""
        yield {"file": str(path), "orphan_label": f"none of that name{meant}"}


def _alike(text: str) -> str:
    """Equal for texts that people take for the same: capitals, spaces and composed letters do not count.

    >>> _alike("Pin Hole ") == _alike("pinhole"), _alike("u\\u0308") == _alike("\\u00fc")
    (True, True)
    """
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def _quarantine_facts(scan: DatasetScan, quarantined: Collection[str]) -> Iterator[Fact]:
    if quarantined:
        count = scan.pictures["path"].nunique()
        share = len(quarantined) / count
        words = f"{len(quarantined)} of {count} ({share:.1%})"
        yield {"file": "the dataset", "quarantined_share": share, "quarantined_words": words}
