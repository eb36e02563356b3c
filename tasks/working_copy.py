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
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import yaml
from prefect import get_run_logger, task

from data_contracts.dataset import Split, label_path_of
from data_contracts.errors import DatasetError, Problem, raise_if_any
from data_contracts.labels import LabelBox, format_label_rows, parse_label_bytes
from tasks.artifacts import leave_markdown
from tasks.datasets.dataset_copy import place_pictures
from tasks.datasets.dataset_layout import DatasetLayout, read_layout
from tasks.datasets.pinned_copy import remove_tree
from tasks.ground_truth import GroundTruth, PictureTruth, picture_truth, read_ground_truth, write_ground_truth
from tasks.splits import SplitChoice, SplitConfig
from tasks.splitting.split_artifact import SplitCounts, splits_markdown
from tasks.splitting.split_facts import Looks, read_boxes
from tasks.splitting.split_ledger import divide_with_ledger
from tasks.trainer_pictures import decode_checked, displayed_wh, encode_png, is_turned, trainer_reads_it

__all__ = [
    "GroundTruth",
    "SplitCounts",
    "WorkingCopy",
    "prepare_working_copy",
    "read_ground_truth",
    "split_and_copy",
    "write_working_copy",
]


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
        {split: _counts(_of(copied, split), len(layout.class_names)) for split in Split},
        sum(item.reencoded for item in copied),
        choice.notes,
    )


def _of(copied: list[_Copied], split: Split) -> list[_Copied]:
    return [item for item in copied if item.place.parts[1] == split]


def _counts(copied: list[_Copied], class_count: int) -> SplitCounts:
    found = Counter(box.class_id for item in copied for box in item.boxes)
    class_boxes = tuple(found[number] for number in range(class_count))
    return SplitCounts(len(copied), sum(bool(item.boxes) for item in copied), found.total(), class_boxes)


def _copy_picture(layout: DatasetLayout, source: PurePosixPath, target: Path, draft: Path) -> _Copied:
    data = (layout.root / source).read_bytes()
    boxes = read_boxes(layout, source)
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


def split_and_copy(
    pinned: Path,
    config: SplitConfig,
    target: Path,
    leave_out: tuple[str, ...] = (),
    ledger: Path | None = None,
    looks: Looks | None = None,
) -> WorkingCopy:
    """Choose the splits of a pinned dataset and write its working copy, without the pictures `leave_out`.

    What the dataset's own record does not say is kept in `ledger`, so that the next revision's pictures keep it.
    """
    divided = divide_with_ledger(_without(read_layout(pinned), leave_out), config, ledger, looks or Looks())
    notes = (f"{len(leave_out)} quarantined pictures stay out.",) if leave_out else ()
    choice = replace(divided.choice, notes=(*notes, *divided.choice.notes))
    return write_working_copy(pinned, choice, target)


def _without(layout: DatasetLayout, leave_out: tuple[str, ...]) -> DatasetLayout:
    """The layout without these pictures. Raises DatasetError for a path that is none of its pictures."""
    out = {PurePosixPath(path) for path in leave_out}
    unknown = sorted(out.difference(*layout.splits.values()))
    action = "This is a fault of Passline; please report it."
    raise_if_any(
        DatasetError,
        [Problem(f"quarantined {path}", "a picture of the dataset", "no such picture", action) for path in unknown],
    )
    splits = {split: tuple(one for one in pictures if one not in out) for split, pictures in layout.splits.items()}
    return replace(layout, splits=splits)


@task
def prepare_working_copy(
    pinned: Path,
    config: SplitConfig,
    target: Path,
    leave_out: tuple[str, ...] = (),
    record_home: Path | None = None,
    dataset: str = "dataset",
    looks: Looks | None = None,
) -> WorkingCopy:
    """Split a pinned dataset and copy it for training, without the pictures `leave_out`.

    Splits that the dataset does not record are kept in `record_home`/<dataset>.csv from one night to the next.
    """
    ledger = record_home / f"{dataset}.csv" if record_home else None
    copy = split_and_copy(pinned, config, target, leave_out, ledger, looks)
    logger = get_run_logger()
    leave_markdown(
        "splits",
        splits_markdown(copy.counts, copy.class_names, copy.notes),
        "Which pictures train, choose thresholds and judge",
    )
    for note in copy.notes:
        logger.info("%s", note)
    for split, counts in copy.counts.items():
        logger.info("%s: %d pictures, %d with %d boxes", split, counts.pictures, counts.labelled, counts.boxes)
    if copy.reencoded:
        logger.info("%d pictures were re-encoded so that the trainer sees what the service sees", copy.reencoded)
    return copy
