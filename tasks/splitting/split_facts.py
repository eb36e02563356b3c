"""From a dataset folder to its splits: reads contents, labels, groups and near copies."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from data_contracts.base import sha256_of
from data_contracts.dataset import label_path_of
from data_contracts.labels import LabelBox, parse_label_bytes
from serving.images import ImageLimits
from tasks.datasets.dataset_layout import DatasetLayout
from tasks.scan import DatasetScan, scan_dataset
from tasks.splits import PictureLabels, SplitChoice, SplitConfig, Ties, choose_splits, undrawn
from tasks.splitting.split_groups import read_groups, with_pattern
from tasks.splitting.split_record import SplitRecord

logger = logging.getLogger(__name__)

COMPARED = ImageLimits(max_bytes=2**26, max_pixels=10**8)
"""Larger pictures are not compared with others, where the caller names no limits."""


@dataclass(frozen=True)
class Looks:
    """How pictures are compared: limits, and whether to show a progress bar. With `scans`, the folder below which scans
    are kept, contents and labels come from the scan as well, and what was scanned before is not read again."""

    limits: ImageLimits = COMPARED
    scans: Path | None = None
    progress: bool = False


@dataclass(frozen=True)
class Divided:
    """The splits of a dataset folder, and what they were drawn from."""

    choice: SplitChoice
    labels: dict[PurePosixPath, PictureLabels]
    groups: dict[PurePosixPath, str]
    """By groups.csv, and by name where that says nothing."""
    drawn: bool
    """Whether there were pictures without a split."""


def divide(layout: DatasetLayout, config: SplitConfig, record: SplitRecord, looks: Looks) -> Divided:
    """The splits of `layout`. Pictures are compared only where one of them has no split yet.

    Raises DatasetError for a groups.csv that is wrong and when there is too little to draw from.
    """
    scan = _scan(layout, looks) if looks.scans else None
    labels = scanned_labels(scan, layout) if scan else read_picture_labels(layout)
    groups = read_groups(layout.root, labels, config.picture_column, config.group_column)
    named = dict(with_pattern(groups, labels, config.group_pattern).of)
    record = record.seen_with(facts.content for facts in labels.values())
    new = undrawn(layout, labels, record)
    near = near_copies(scan or _scan(layout, looks)) if new and config.near_duplicates else ()
    choice = choose_splits(layout, labels, config, record=record, ties=Ties(named, near))
    return Divided(replace(choice, notes=(*groups.notes, *choice.notes)), labels, named, bool(new))


def read_picture_labels(layout: DatasetLayout) -> dict[PurePosixPath, PictureLabels]:
    """Class ids and content hash of every picture of a layout."""
    pictures = list(dict.fromkeys(picture for found in layout.splits.values() for picture in found))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return dict(zip(pictures, pool.map(lambda picture: _read(layout, picture), pictures), strict=True))


def _read(layout: DatasetLayout, picture: PurePosixPath) -> PictureLabels:
    class_ids = tuple(box.class_id for box in read_boxes(layout, picture))
    return PictureLabels(class_ids, sha256_of((layout.root / picture).read_bytes()))


def read_boxes(layout: DatasetLayout, picture: PurePosixPath) -> tuple[LabelBox, ...]:
    """The usable boxes of a picture; validation has reported the other rows."""
    path = layout.root / label_path_of(picture)
    rows = parse_label_bytes(path.read_bytes(), len(layout.class_names)) if path.is_file() else []
    return tuple(row for row in rows if isinstance(row, LabelBox))


def _scan(layout: DatasetLayout, looks: Looks) -> DatasetScan:
    return scan_dataset(layout.root, looks.limits, cache=looks.scans, progress=looks.progress)


def scanned_labels(scan: DatasetScan, layout: DatasetLayout) -> dict[PurePosixPath, PictureLabels]:
    """The same as `read_picture_labels`, from a scan of the folder."""
    wanted = {picture for pictures in layout.splits.values() for picture in pictures}
    boxes = scan.labels[scan.labels["class_id"].notna()].drop_duplicates(["picture", "line"])
    class_ids: dict[str, list[int]] = {}
    for path, class_id in zip(boxes["picture"], boxes["class_id"], strict=True):
        class_ids.setdefault(path, []).append(int(class_id))
    contents = dict(zip(scan.pictures["path"], scan.pictures["sha256"], strict=True))
    return {
        picture: PictureLabels(tuple(class_ids.get(path, ())), content)
        for path, content in contents.items()
        if (picture := PurePosixPath(path)) in wanted
    }


def near_copies(scan: DatasetScan) -> tuple[tuple[PurePosixPath, PurePosixPath], ...]:
    """Pairs of pictures that nearly look the same."""
    paths = [PurePosixPath(path) for path in scan.pictures["path"]]
    logger.info("%d pairs of near copies among %d pictures", len(scan.near), len(paths))
    return tuple((paths[one], paths[other]) for one, other in zip(scan.near["first"], scan.near["second"], strict=True))
