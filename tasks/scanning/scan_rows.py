"""The columns of the scan's two tables, and what is read from a label file."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator

from data_contracts.labels import LabelBox, LabelProblem, LabelRow, parse_label_bytes

MOST_LABEL_BYTES = 2**24
"""A label file of 16 MiB would hold 400,000 boxes: it is something else."""


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
    """labelled (one box or more), empty (a file without boxes), listed (no file, but among the dataset's backgrounds)
    or missing."""
    boxes: int
    labels_key: str
    """Equal for two pictures with the same boxes."""
    group: str | None
    width_px: int | None
    height_px: int | None
    mode: str | None
    """As Pillow names it: RGB, L, P, I;16."""
    bit_depth: int | None
    """Bits per sample in the file; pixels are 8-bit once read."""
    exif_orientation: int | None
    jpeg_end: str | None
    """ok, trailing (bytes behind the end marker) or missing; None for other formats."""
    perceptual_hash: str | None
    """64 bits, 16 hexadecimal digits; all zeros for a flat picture."""
    brightness: float | None
    """Mean grey value, 0 to 255."""
    contrast: float | None
    """Standard deviation of the grey values."""
    sharpness: float | None
    """Variance of the Laplacian of the grey values."""
    thumbnail: bytes | None
    """Mean grey values of 32 x 32 cells, row by row: what near duplicates are compared by."""
    rule: str | None
    expected: str | None
    got: str | None


@dataclass(frozen=True)
class LabelLine:
    """One row of a label file. `class_id` and the box are None where the row gives no box."""

    file: str
    picture: str
    split: str
    line: int
    text: str
    class_id: int | None
    centre_x: float | None
    centre_y: float | None
    width: float | None
    height: float | None
    width_px: float | None
    height_px: float | None
    rule: str | None
    expected: str | None
    got: str | None


LabelValues = tuple[
    int, str, int | None, float | None, float | None, float | None, float | None, str | None, str | None, str | None
]
"""line, text, class id, centre x and y, width, height (fractions), rule, expected, got."""


@dataclass(frozen=True, slots=True)
class LabelFacts:
    """One label file: its state (labelled, empty or missing), the number and key of its boxes, its rows."""

    state: str
    boxes: int
    key: str
    rows: tuple[LabelValues, ...]


def read_labels(path: Path, class_count: int) -> LabelFacts:
    """The facts of the label file at `path`; a file that cannot be read is one problem with line 0."""
    rows: list[LabelRow] | None
    try:
        rows = _read_rows(path, class_count) if path.is_file() else _no_rows(path)
    except OSError as error:
        rows = [_unreadable(str(error.strerror).lower())]
    boxes = [row for row in rows or [] if isinstance(row, LabelBox)]
    state = "missing" if rows is None else "labelled" if boxes else "empty"
    return LabelFacts(state, len(boxes), labels_key(boxes), tuple(line for row in rows or [] for line in _lines(row)))


def _no_rows(path: Path) -> list[LabelRow] | None:
    """None where nothing lies at `path`; a folder, a pipe or a dead link there is no missing label file."""
    if path.is_symlink():
        return [_unreadable(f"a link to {path.readlink()}, where no file is")]
    return [_unreadable("a folder" if path.is_dir() else "no plain file")] if path.exists() else None


def _unreadable(got: str) -> LabelProblem:
    return LabelProblem(0, "", "label_unreadable", "a label file that can be read", got)


def _read_rows(path: Path, class_count: int) -> list[LabelRow]:
    with path.open("rb") as file:
        data = file.read(MOST_LABEL_BYTES + 1)
    if len(data) > MOST_LABEL_BYTES:
        expected = f"a label file of at most {MOST_LABEL_BYTES} bytes"
        return [LabelProblem(0, "", "label_encoding", expected, f"{path.stat().st_size} bytes")]
    return parse_label_bytes(data, class_count)


def _lines(row: LabelRow) -> list[LabelValues]:
    """The row with its first remark, then one more for each further remark, without the box."""
    if isinstance(row, LabelProblem):
        return [(row.line, row.text, None, None, None, None, None, *_remark(row))]
    first, *more = row.warnings or (None,)
    line: LabelValues = (row.line, row.text, row.class_id, *row.box_cxcywh, *_remark(first))
    return [line, *((row.line, row.text, None, None, None, None, None, *_remark(problem)) for problem in more)]


def _remark(problem: LabelProblem | None) -> tuple[str | None, str | None, str | None]:
    return (None, None, None) if problem is None else (problem.rule, problem.expected, problem.got)


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
