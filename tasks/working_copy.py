"""Step `working copy`: the folder that training reads and may write to, made from a pinned dataset.

    data.yaml                     absolute paths, so that nothing depends on a working directory or user settings
    images/<split>/..             copies, never links: the trainer rewrites some JPEGs in place
    labels/<split>/..             five columns, inside the picture, each row once; empty for a picture without defects
    ground_truth.json             the same boxes in pixels, for evaluation

Pictures that the trainer would rewrite, refuse or read otherwise than the service are re-encoded as 8-bit RGB PNG from
the pixels that the service sees.
"""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import yaml
from prefect import get_run_logger, task

from data_contracts.base import sha256_of
from data_contracts.dataset import Split, label_path_of
from data_contracts.errors import DatasetError, Problem, raise_if_any
from data_contracts.labels import LabelBox, format_label_rows, parse_label_bytes
from tasks.dataset_copy import place_pictures
from tasks.dataset_layout import DatasetLayout, read_layout
from tasks.ground_truth import GroundTruth, PictureTruth, picture_truth, read_ground_truth, write_ground_truth
from tasks.pinned_copy import remove_tree
from tasks.splits import PictureLabels, SplitChoice, SplitConfig, choose_splits
from tasks.trainer_pictures import decode_checked, displayed_wh, encode_png, is_turned, trainer_reads_it

__all__ = [
    "GroundTruth",
    "SplitCounts",
    "WorkingCopy",
    "prepare_working_copy",
    "read_ground_truth",
    "read_picture_labels",
    "split_and_copy",
    "write_working_copy",
]


@dataclass(frozen=True)
class SplitCounts:
    """What one split of the working copy holds."""

    pictures: int
    labelled: int
    boxes: int


@dataclass(frozen=True)
class WorkingCopy:
    """A folder ready for training."""

    folder: Path
    data_yaml: Path
    class_names: tuple[str, ...]
    counts: dict[Split, SplitCounts]
    reencoded: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Copied:
    place: PurePosixPath
    boxes: tuple[LabelBox, ...]
    truth: PictureTruth
    reencoded: bool


def read_picture_labels(layout: DatasetLayout) -> dict[PurePosixPath, PictureLabels]:
    """Class ids and content hash of every picture of a layout, for drawing splits."""
    return {
        picture: PictureLabels(
            tuple(box.class_id for box in _read_boxes(layout, picture)),
            sha256_of((layout.root / picture).read_bytes()),
        )
        for pictures in layout.splits.values()
        for picture in pictures
    }


def write_working_copy(pinned: Path, choice: SplitChoice, target: Path) -> WorkingCopy:
    """Write the pictures of `choice` (paths relative to `pinned`) and their labels to `target`, replacing it.

    Raises ImageError when a picture cannot be decoded, DatasetError when the trainer would not see the boxes that were
    counted.
    """
    layout = replace(read_layout(pinned), splits=choice.splits)
    places = {place: source for source, found in place_pictures(layout).items() for place in found}
    draft = target.with_name(f".{target.name}.draft")
    remove_tree(draft)
    with warnings.catch_warnings(), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        warnings.simplefilter("ignore")  # Pillow's remarks on odd headers.
        jobs = sorted(places.items())
        copied = list(pool.map(lambda job: _copy_picture(layout, job[1], draft / job[0], draft), jobs))
    write_ground_truth(draft, {split: [item.truth for item in _of(copied, split)] for split in Split})
    (draft / "data.yaml").write_text(_trainer_yaml(target.absolute(), layout.class_names), "utf-8")
    _check_labels(draft, copied, len(layout.class_names))
    remove_tree(target)
    draft.rename(target)
    return WorkingCopy(
        target,
        target / "data.yaml",
        layout.class_names,
        {split: _counts(_of(copied, split)) for split in Split},
        sum(item.reencoded for item in copied),
        choice.notes,
    )


def _of(copied: list[_Copied], split: Split) -> list[_Copied]:
    return [item for item in copied if item.place.parts[1] == split]


def _counts(copied: list[_Copied]) -> SplitCounts:
    return SplitCounts(len(copied), sum(bool(item.boxes) for item in copied), sum(len(item.boxes) for item in copied))


def _read_boxes(layout: DatasetLayout, picture: PurePosixPath) -> tuple[LabelBox, ...]:
    """The usable boxes of a picture; validation has reported the other rows."""
    path = layout.root / label_path_of(picture)
    rows = parse_label_bytes(path.read_bytes(), len(layout.class_names)) if path.is_file() else []
    return tuple(row for row in rows if isinstance(row, LabelBox))


def _copy_picture(layout: DatasetLayout, source: PurePosixPath, target: Path, draft: Path) -> _Copied:
    data = (layout.root / source).read_bytes()
    boxes = _read_boxes(layout, source)
    as_it_is = trainer_reads_it(data, target.suffix)
    image = None if as_it_is and not is_turned(data) else decode_checked(data)
    if not as_it_is and image is not None:
        target, data = target.with_suffix(".png"), encode_png(image)
    _write_new(target, data)
    place = PurePosixPath(target.relative_to(draft).as_posix())
    _write_new(draft / label_path_of(place), format_label_rows(boxes).encode())
    return _Copied(place, boxes, picture_truth(place, displayed_wh(data, image), boxes), not as_it_is)


def _write_new(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as handle:
            handle.write(data)
    except FileExistsError:
        action = "Rename one of the two pictures: a re-encoded picture takes its stem with .png."
        raise DatasetError(Problem(path.name, "a name of its own", "two pictures of this name", action)) from None


def _trainer_yaml(folder: Path, class_names: tuple[str, ...]) -> str:
    fields: dict[str, object] = {"path": str(folder), **{split.value: f"images/{split}" for split in Split}}
    return yaml.safe_dump(fields | {"names": dict(enumerate(class_names))}, sort_keys=False, allow_unicode=True)


def _check_labels(draft: Path, copied: list[_Copied], class_count: int) -> None:
    """Read every label file again: five columns, no problem left, as many boxes as were counted."""
    problems = []
    for item in copied:
        rows = parse_label_bytes((draft / label_path_of(item.place)).read_bytes(), class_count)
        clean = [row for row in rows if isinstance(row, LabelBox) and not row.warnings]
        if len(clean) != len(rows) or len(clean) != len(item.boxes):
            action = "This is a fault of Passline; please report it with the label file."
            problems.append(Problem(f"labels of {item.place}", f"{len(item.boxes)} boxes", str(len(clean)), action))
    raise_if_any(DatasetError, problems)


def split_and_copy(pinned: Path, config: SplitConfig, target: Path) -> WorkingCopy:
    """Choose the splits of a pinned dataset and write its working copy."""
    layout = read_layout(pinned)
    return write_working_copy(pinned, choose_splits(layout, read_picture_labels(layout), config), target)


@task
def prepare_working_copy(pinned: Path, config: SplitConfig, target: Path) -> WorkingCopy:
    """Split a pinned dataset and copy it for training."""
    copy = split_and_copy(pinned, config, target)
    logger = get_run_logger()
    for note in copy.notes:
        logger.info("%s", note)
    for split, counts in copy.counts.items():
        logger.info("%s: %d pictures, %d with %d boxes", split, counts.pictures, counts.labelled, counts.boxes)
    if copy.reencoded:
        logger.info("%d pictures were re-encoded so that the trainer sees what the service sees", copy.reencoded)
    return copy
