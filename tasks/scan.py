"""A dataset folder as two tables: one row per picture and split, one row per label line (and per extra finding on it).

A file whose size, time of change and inode are those of the last scan is not read again; see
`tasks.scanning.scan_cache`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from data_contracts.dataset import label_path_of
from data_contracts.errors import DatasetError, Problem, raise_if_any
from serving.images import ImageLimits
from tasks.datasets.dataset_layout import DatasetLayout, is_clutter, is_picture, read_layout
from tasks.scanning.scan_cache import NOTHING, Known, ScanCache
from tasks.scanning.scan_files import Files, Reader, update
from tasks.scanning.scan_rows import GroupPattern, LabelLine, PictureRow, group_key

__all__ = ["DatasetScan", "GroupPattern", "LabelLine", "PictureRow", "group_key", "scan_dataset"]

_WHOLE = ("width_px", "height_px", "bit_depth", "exif_orientation", "class_id")


@dataclass(frozen=True)
class DatasetScan:
    """The two tables of a dataset folder, its layout, and label files that belong to no picture."""

    layout: DatasetLayout
    pictures: pd.DataFrame
    """One row per picture and split; the columns are the fields of `PictureRow`."""
    labels: pd.DataFrame
    """One row per label line; the columns are the fields of `LabelLine`."""
    orphan_labels: tuple[PurePosixPath, ...]

    @cached_property
    def near(self) -> pd.DataFrame:
        """Near duplicates among the pictures, as `near_pairs` finds them; searched for once, at the first use."""
        from tasks.scanning.near_duplicates import near_pairs  # It loads scipy.

        return near_pairs(self.pictures)


def scan_dataset(
    folder: Path,
    limits: ImageLimits,
    group_pattern: str | None = None,
    *,
    cache: Path | None = None,
    full: bool = False,
    progress: bool = False,
) -> DatasetScan:
    """Read every picture and label of `folder`.

    `group_pattern` is a regular expression on the picture's stem; its first group is the group key (part, lot, burst).
    `cache`: the folder below which the tables are kept for the next scan. `full`: read every file again, although size
    and time say that it is unchanged; only other bytes are decoded. `progress`: show a bar on a terminal.
    Raises DatasetError when data.yaml does not describe the folder; faults of single files are rows of the tables.
    """
    layout = read_layout(folder)
    files = _files(layout)
    store = ScanCache(cache, layout, limits) if cache else None
    known, contents = store.load() if store else (NOTHING, {})
    reader = Reader(limits, len(layout.class_names), contents)
    found = update(known, files, reader, full=full, progress=progress)
    if store:
        store.keep(found, is_new=found is not known)
    pictures = _picture_table(layout, files, found, group_pattern)
    return DatasetScan(layout, pictures, _label_table(pictures, found), _orphan_labels(files))


def _files(layout: DatasetLayout) -> Files:
    """Every picture once, in the order of the splits. Raises DatasetError for names that no table can hold."""
    pictures = list(dict.fromkeys(str(picture) for part in layout.splits.values() for picture in part))
    raise_if_any(DatasetError, [
        Problem(f"picture {os.fsencode(path)!r}", "a name in UTF-8", "other bytes", "Rename the file.")
        for path in pictures if not _is_text(path)
    ])  # fmt: skip
    label_folders = dict[str, str]()
    labels = [_label_path(path, label_folders) for path in pictures]
    return Files(layout.root, pictures, labels)


def _is_text(path: str) -> bool:
    """Whether a file name was UTF-8; other bytes come as surrogates."""
    return path.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in path)


def _label_path(picture: str, folders: dict[str, str]) -> str:
    """`label_path_of` as text; it is asked once per folder, and `folders` keeps the answers."""
    folder, _, name = picture.rpartition("/")
    if folder not in folders:
        folders[folder] = str(label_path_of(PurePosixPath(folder, "x.jpg")).parent)
    stem = name.rpartition(".")[0]
    return f"{stem}.txt" if folders[folder] == "." else f"{folders[folder]}/{stem}.txt"


def _picture_table(layout: DatasetLayout, files: Files, found: Known, group_pattern: str | None) -> pd.DataFrame:
    number = {path: position for position, path in enumerate(files.pictures)}
    placed = [(number[str(path)], split.value, path) for split, paths in layout.splits.items() for path in paths]
    at = np.array([position for position, _, _ in placed], dtype=np.int64)
    pattern = re.compile(group_pattern) if group_pattern else None
    table = found.pictures.take(at).reset_index(drop=True)
    is_listed = [state == "missing" and path in layout.backgrounds
                 for state, (_, _, path) in zip(table["label_state"], placed, strict=True)]  # fmt: skip
    table["label_state"] = table["label_state"].mask(np.array(is_listed, dtype=np.bool_), "listed")
    table["label_path"] = pd.Series([files.labels[position] for position in at], dtype="str")
    table["split"] = pd.Series([split for _, split, _ in placed], dtype="str")
    table["group"] = pd.Series([group_key(path, pattern) for _, _, path in placed], dtype="str")
    return _with_integers(table)[_columns(PictureRow)]


def _label_table(pictures: pd.DataFrame, found: Known) -> pd.DataFrame:
    """The label rows in the order of the pictures; a picture that two splits name has its rows twice."""
    wanted = ["path", "split", "label_path", "width_px", "height_px"]
    table = pictures[wanted].rename(columns={"path": "picture", "label_path": "file"}).merge(found.labels, on="picture")
    table["width_px"] = table["width_px"] * table["width"]
    table["height_px"] = table["height_px"] * table["height"]
    return _with_integers(table)[_columns(LabelLine)]


def _with_integers(table: pd.DataFrame) -> pd.DataFrame:
    """Whole numbers as integers, in columns without gaps; they are floats elsewhere."""
    whole = [name for name in _WHOLE if name in table and table[name].notna().all()]
    return table.astype(dict.fromkeys(whole, "int64"))


def _columns(row_type: type[PictureRow | LabelLine]) -> list[str]:
    return list(row_type.__dataclass_fields__)


def _orphan_labels(files: Files) -> tuple[PurePosixPath, ...]:
    """Label files in the folders of the labels that belong to no picture, neither to one that no split names."""
    wanted = set(files.labels)
    folders = {label.rpartition("/")[0] for label in wanted}
    found = {
        f"{folder}/{entry.name}"
        for folder in folders
        if "labels" in folder.split("/") and (files.root / folder).is_dir()
        for entry in os.scandir(files.root / folder)
        if entry.name.endswith(".txt") and not is_clutter(entry.name)
    }
    orphans = found - wanted
    return tuple(map(PurePosixPath, sorted(orphans - _labels_of_unused(files) if orphans else orphans)))


def _labels_of_unused(files: Files) -> set[str]:
    """The label files of all pictures in the folders of the splits, named by a split or not."""
    label_folders = dict[str, str]()
    return {
        _label_path(f"{folder}/{entry.name}", label_folders)
        for folder in {picture.rpartition("/")[0] for picture in files.pictures}
        for entry in os.scandir(files.root / folder)
        if is_picture(entry.name)
    }
