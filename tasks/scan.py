"""A dataset folder as two tables: one row per picture and split, one row per label line (and per extra finding on it).

Pictures are decoded in full, with the reader that serves: what the scan can read, training and service can read.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated

import pandas as pd
from PIL import Image as PilImage
from pydantic import AfterValidator

from data_contracts.base import sha256_of
from data_contracts.dataset import Split, label_path_of
from data_contracts.errors import EmptyImage, ImageError, ImageTooLarge, Problem, UnsupportedImage
from data_contracts.labels import LabelBox, LabelProblem, LabelRow, parse_label_bytes
from serving.images import ImageLimits, decode_image
from tasks.dataset_layout import DatasetLayout, is_clutter, read_layout

_JPEG_END = b"\xff\xd9"


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    return pattern


GroupPattern = Annotated[str, AfterValidator(_compiles)] | None
"""A regular expression on a picture's stem; its first group (or the match) is the part, lot or burst."""


@dataclass(frozen=True)
class PictureRow:
    """One picture in one split. Sizes are those of the displayed picture; None where it could not be decoded."""

    path: str
    split: str
    size_bytes: int
    sha256: str
    label_path: str
    label_state: str
    """labelled (one box or more), empty (a file without boxes) or missing (no file)."""
    boxes: int
    labels_key: str
    """Equal for two pictures with the same boxes."""
    group: str | None = None
    width_px: int | None = None
    height_px: int | None = None
    mode: str | None = None
    exif_orientation: int | None = None
    jpeg_end: str | None = None
    """ok, trailing (bytes behind the end marker) or missing; None for other formats."""
    rule: str | None = None
    expected: str | None = None
    got: str | None = None


@dataclass(frozen=True)
class LabelLine:
    """One row of a label file. `class_id` and the box are None where the row gives no box."""

    file: str
    picture: str
    split: str
    line: int
    text: str
    class_id: int | None = None
    centre_x: float | None = None
    centre_y: float | None = None
    width: float | None = None
    height: float | None = None
    width_px: float | None = None
    height_px: float | None = None
    rule: str | None = None
    expected: str | None = None
    got: str | None = None


@dataclass(frozen=True)
class DatasetScan:
    """The two tables of a dataset folder, its layout, and label files that belong to no picture."""

    layout: DatasetLayout
    pictures: pd.DataFrame
    labels: pd.DataFrame
    orphan_labels: tuple[PurePosixPath, ...]


def scan_dataset(folder: Path, limits: ImageLimits, group_pattern: str | None = None) -> DatasetScan:
    """Read every picture and label of `folder`.

    `group_pattern` is a regular expression on the picture's stem; its first group is the group key (part, lot, burst).
    Raises DatasetError when data.yaml does not describe the folder; faults of single files are rows of the tables.
    """
    layout = read_layout(folder)
    jobs = [(split, picture) for split, pictures in layout.splits.items() for picture in pictures]
    pattern = re.compile(group_pattern) if group_pattern else None
    with warnings.catch_warnings(), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        warnings.simplefilter("ignore")  # Pillow's remarks on odd headers; what matters becomes a row.
        read = list(pool.map(lambda job: _scan_picture(layout, job[0], job[1], limits, pattern), jobs))
    pictures = pd.DataFrame([asdict(row) for row, _ in read], columns=_columns(PictureRow))
    labels = pd.DataFrame([asdict(line) for _, lines in read for line in lines], columns=_columns(LabelLine))
    return DatasetScan(layout, pictures, labels, _orphan_labels(layout))


def _columns(row_type: type[PictureRow | LabelLine]) -> list[str]:
    return list(row_type.__dataclass_fields__)


def _scan_picture(
    layout: DatasetLayout, split: Split, picture: PurePosixPath, limits: ImageLimits, pattern: re.Pattern[str] | None
) -> tuple[PictureRow, list[LabelLine]]:
    data = (layout.root / picture).read_bytes()
    label_path = label_path_of(picture)
    label_file = layout.root / label_path
    rows = parse_label_bytes(label_file.read_bytes(), len(layout.class_names)) if label_file.is_file() else None
    boxes = [row for row in rows or [] if isinstance(row, LabelBox)]
    row = PictureRow(
        path=str(picture),
        split=split.value,
        size_bytes=len(data),
        sha256=sha256_of(data),
        label_path=str(label_path),
        label_state="missing" if rows is None else "labelled" if boxes else "empty",
        boxes=len(boxes),
        labels_key=labels_key(boxes),
        group=group_key(picture, pattern),
    )
    row = _with_pixels(row, data, limits)
    return row, [line for label in rows or [] for line in _label_lines(row, label)]


def group_key(picture: PurePosixPath, pattern: re.Pattern[str] | None) -> str | None:
    """The part, lot or burst that a picture belongs to by its name, or None.

    >>> group_key(PurePosixPath("images/train/part7_03.png"), re.compile(r"^(part\\d+)_"))
    'part7'
    """
    found = pattern.search(picture.stem) if pattern else None
    return found.group(1 if found.re.groups else 0) if found else None


def labels_key(boxes: list[LabelBox]) -> str:
    """A short hash that is equal for equal boxes in any order."""
    values = sorted((box.class_id, *(round(value, 6) for value in box.box_cxcywh)) for box in boxes)
    return hashlib.blake2b(repr(values).encode(), digest_size=8).hexdigest()


def _with_pixels(row: PictureRow, data: bytes, limits: ImageLimits) -> PictureRow:
    try:
        height, width = decode_image(data, limits).shape[:2]
    except ImageError as error:
        problem = error.problems[0]
        expected, got = (problem.expected, problem.got) if isinstance(problem, Problem) else ("a picture", str(problem))
        return replace(row, rule=_decode_rule(error), expected=expected, got=got)
    mode, orientation = _header_facts(data)
    return replace(
        row, width_px=width, height_px=height, mode=mode, exif_orientation=orientation, jpeg_end=jpeg_end(data)
    )


def _decode_rule(error: ImageError) -> str:
    if isinstance(error, ImageTooLarge):
        return "picture_too_large"
    return "picture_unsupported" if isinstance(error, EmptyImage | UnsupportedImage) else "picture_undecodable"


def _header_facts(data: bytes) -> tuple[str | None, int | None]:
    """Pillow's mode and the EXIF orientation; None where Pillow cannot read what the decoder could."""
    try:
        with PilImage.open(io.BytesIO(data)) as image:
            return image.mode, image.getexif().get(0x0112)
    except Exception:  # noqa: BLE001  Damaged headers raise anything from SyntaxError to struct.error in Pillow.
        return None, None


def jpeg_end(data: bytes) -> str | None:
    """How a JPEG file ends: ok, trailing bytes behind the end marker, or marker missing; None for other formats."""
    if not data.startswith(b"\xff\xd8"):
        return None
    if data.endswith(_JPEG_END):
        return "ok"
    return "trailing" if _JPEG_END in data else "missing"


def _label_lines(row: PictureRow, label: LabelRow) -> list[LabelLine]:
    line = LabelLine(row.label_path, row.path, row.split, label.line, label.text)
    if isinstance(label, LabelProblem):
        return [_with_problem(line, label)]
    first, *more = label.warnings or (None,)
    centre_x, centre_y, width, height = label.box_cxcywh
    box = replace(
        line, class_id=label.class_id, centre_x=centre_x, centre_y=centre_y, width=width, height=height,
        width_px=width * row.width_px if row.width_px else None,
        height_px=height * row.height_px if row.height_px else None,
    )  # fmt: skip
    return [_with_problem(box, first), *(_with_problem(line, problem) for problem in more)]


def _with_problem(line: LabelLine, problem: LabelProblem | None) -> LabelLine:
    return line if problem is None else replace(line, rule=problem.rule, expected=problem.expected, got=problem.got)


def _orphan_labels(layout: DatasetLayout) -> tuple[PurePosixPath, ...]:
    """Label files in the folders of the labels that belong to no picture."""
    wanted = {label_path_of(picture) for pictures in layout.splits.values() for picture in pictures}
    folders = {path.parent for path in wanted if "labels" in path.parent.parts}
    found = {
        PurePosixPath(path.relative_to(layout.root).as_posix())
        for folder in folders
        for path in (layout.root / folder).glob("*.txt")
        if not is_clutter(path.name)
    }
    return tuple(sorted(found - wanted))
