"""Label files: one row per defect box per picture, in the Ultralytics YOLO text format and its usual dialects.

A row is a class id and a box: centre x, centre y, width, height as fractions of the displayed picture. A UTF-8 byte
order mark, CRLF, tabs and blank lines are harmless. What can be read in one way only is read and reported as a warning:

    0 x1 y1 x2 y2 x3 y3 ..       polygon or oriented box: its extent
    0 cx cy w h 0.87             confidence of a model: dropped
    box over the picture's edge  clipped
    row that stands twice        once
    width or height of 0         dropped, as are comment lines

Everything else is an error, named with its line. The boxes that come out are those that the trainer gets: its label
files are written from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

EDGE_TOLERANCE = 0.01
"""How far outside 0..1 a value may lie, as in the trainer. Boxes that reach over the edge are clipped."""

CLIP_NOTICE = 0.001
"""A corner this far over the edge is reported; less is rounding in the exporter."""

CxCyWh = tuple[float, float, float, float]
Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class LabelProblem:
    """One row that cannot be used (error), or that was read with a correction (warning).

    `rule` is a stable name of what the row breaks; `line` starts at 1 and is 0 for the file as a whole.
    """

    line: int
    text: str
    rule: str
    expected: str
    got: str
    severity: Severity = "error"


@dataclass(frozen=True)
class LabelBox:
    """One row: class id, then centre x, centre y, width and height as fractions of the picture, inside 0..1."""

    line: int
    class_id: int
    box_cxcywh: CxCyWh
    text: str = ""
    warnings: tuple[LabelProblem, ...] = ()


LabelRow = LabelBox | LabelProblem


class _RowError(ValueError):
    """Why a row is no box: rule, expected, got."""

    def __init__(self, rule: str, expected: str, got: str, severity: Severity = "error") -> None:
        super().__init__(rule)
        self.facts = (rule, expected, got, severity)


def parse_label_bytes(data: bytes, class_count: int) -> list[LabelRow]:
    """The rows of one label file; a file that is no UTF-8 text is one problem with line 0."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return [LabelProblem(0, "", "label_encoding", "text in UTF-8", f"byte {data[error.start]:#04x}")]
    return parse_label_lines(text.splitlines(), class_count)


def parse_label_lines(lines: Iterable[str], class_count: int) -> list[LabelRow]:
    """One entry per non-blank line, boxes and problems alike; the line numbers start at 1."""
    numbered = ((number, line.removeprefix("\ufeff").strip()) for number, line in enumerate(lines, start=1))
    rows: list[LabelRow] = []
    first_line: dict[tuple[float, ...], int] = {}
    for number, text in numbered:
        if not text:
            continue
        row = _parse_row(number, text, class_count)
        if isinstance(row, LabelBox):
            earlier = first_line.setdefault((row.class_id, *(round(value, 9) for value in row.box_cxcywh)), number)
            if earlier != number:
                got = f"the row of line {earlier} again"
                row = LabelProblem(number, text, "label_duplicate", "every box once", got, "warning")
        rows.append(row)
    return rows


def _parse_row(line: int, text: str, class_count: int) -> LabelRow:
    try:
        class_id, box, notes = _read_row(text, class_count)
    except _RowError as error:
        rule, expected, got, severity = error.facts
        return LabelProblem(line, text, rule, expected, got, severity)
    clipped, note = _clip(box)
    if min(clipped[2:]) <= 0:
        return LabelProblem(line, text, "box_zero", "a box inside the picture", "a box outside its edge", "warning")
    notes = [*notes, note] if note else notes
    warnings = tuple(LabelProblem(line, text, *error.facts) for error in notes)
    return LabelBox(line, class_id, clipped, text, warnings)


def _read_row(text: str, class_count: int) -> tuple[int, CxCyWh, list[_RowError]]:
    if text.startswith("#"):
        raise _RowError("label_comment", "rows of numbers only", repr(text[:80]), "warning")
    fields = text.split()
    if len(fields) < 5 or (len(fields) > 6 and len(fields) % 2 == 0):
        raise _columns_error(text, fields)
    class_id = _read_class_id(fields[0], text, class_count)
    values = _read_numbers(fields[1:], text)
    if len(values) == 4:
        return class_id, _read_box(values), []
    if len(values) == 5:
        return class_id, _read_box(values[:4]), [_confidence_note(values[4], fields)]
    return class_id, _read_polygon(values), [_polygon_note(values)]


def _columns_error(text: str, fields: Sequence[str]) -> _RowError:
    hint = " separated by commas" if "," in text else ""
    expected = "5 numbers separated by spaces: class id, centre x, centre y, width, height"
    return _RowError("label_columns", expected, f"{len(fields)} fields{hint}: {text[:80]!r}")


def _read_class_id(field: str, text: str, class_count: int) -> int:
    value = _read_numbers([field], text)[0]
    if not value.is_integer() or not 0 <= value < class_count:
        raise _RowError("class_id", f"a whole number from 0 to {class_count - 1}", field)
    return int(value)


def _read_numbers(fields: Sequence[str], text: str) -> list[float]:
    try:
        values = [float(field) for field in fields]
    except ValueError:
        hint = " (separated by commas)" if "," in text else ""
        raise _RowError("label_numbers", "numbers separated by spaces", f"{text[:80]!r}{hint}") from None
    if not all(map(math.isfinite, values)):
        raise _RowError("label_numbers", "finite numbers", repr(text[:80]))
    return values


def _check_range(values: Sequence[float]) -> None:
    if min(values) < -EDGE_TOLERANCE or max(values) > 1 + EDGE_TOLERANCE:
        hint = " (pixels, not divided by the picture's size)" if max(values) > 2 else ""
        got = " ".join(f"{value:g}" for value in values[:8]) + hint
        raise _RowError("box_range", "centre and size as fractions of the picture, 0 to 1", got)


def _read_box(values: Sequence[float]) -> CxCyWh:
    centre_x, centre_y, width, height = values
    size = f"{width:g} x {height:g}"
    if width < 0 or height < 0:
        raise _RowError("box_size", "a width and a height over 0", size)
    _check_range(values)
    if width == 0 or height == 0:
        raise _RowError("box_zero", "a width and a height over 0", size, "warning")
    return centre_x, centre_y, width, height


def _read_polygon(values: Sequence[float]) -> CxCyWh:
    """The extent of a polygon x1 y1 x2 y2 ..; four corners must make a convex shape."""
    _check_range(values)
    xs, ys = values[0::2], values[1::2]
    if len(xs) == 4 and not _is_convex(list(zip(xs, ys, strict=True))):
        # Exporters that leave no final newline glue two rows into one: "0.25" + "0" gives 9 columns too.
        got = "9 numbers that are no quadrilateral, as when two rows are joined into one"
        raise _RowError("label_columns", "5 numbers, or the corners of an outline", got)
    left, right, top, bottom = min(xs), max(xs), min(ys), max(ys)
    if left == right or top == bottom:
        raise _RowError("box_zero", "an outline with an area", "corners on one line", "warning")
    return _rounded((left, top, right, bottom))


def _rounded(corners: CxCyWh) -> CxCyWh:
    """Corners as centre and size, to the digits that are written to label files.

    >>> _rounded((0.1, 0.1, 0.3, 0.5))
    (0.2, 0.3, 0.2, 0.4)
    """
    left, top, right, bottom = corners
    values = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
    return (round(values[0], 9), round(values[1], 9), round(values[2], 9), round(values[3], 9))


def _is_convex(points: list[tuple[float, float]]) -> bool:
    """Whether the corners turn one way only.

    >>> _is_convex([(0, 0), (1, 0), (1, 1), (0, 1)]), _is_convex([(0, 0), (1, 1), (1, 0), (0, 1)])
    (True, False)
    """
    sides = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise([*points, points[0]])]
    turns = [a[0] * b[1] - a[1] * b[0] for a, b in pairwise([*sides, sides[0]])]
    return all(turn >= 0 for turn in turns) or all(turn <= 0 for turn in turns)


def _confidence_note(value: float, fields: Sequence[str]) -> _RowError:
    if not 0 <= value <= 1:
        raise _columns_error(" ".join(fields), fields)
    got = f"a sixth, {fields[5]}, as models write their confidence"
    return _RowError("label_confidence", "5 columns", got, "warning")


def _polygon_note(values: Sequence[float]) -> _RowError:
    got = f"an outline of {len(values) // 2} corners, read as its extent"
    return _RowError("label_polygon", "a box: centre x, centre y, width, height", got, "warning")


def _clip(box: CxCyWh) -> tuple[CxCyWh, _RowError | None]:
    """The part of the box inside the picture, and a note when more than rounding was cut off.

    >>> _clip((0.95, 0.5, 0.2, 0.2))[0]
    (0.925, 0.5, 0.15, 0.2)
    """
    centre_x, centre_y, width, height = box
    corners = (centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2)
    over = max(0.0, -corners[0], -corners[1], corners[2] - 1, corners[3] - 1)
    if over == 0:
        return box, None
    left, top, right, bottom = (min(max(value, 0.0), 1.0) for value in corners)
    note = _RowError("box_clipped", "a box inside the picture", f"a corner {over:.4f} over the edge", "warning")
    return _rounded((left, top, right, bottom)), note if over > CLIP_NOTICE else None


def format_label_rows(boxes: Iterable[LabelBox]) -> str:
    """The text of a label file in the trainer's format, one row per box."""
    return "".join(f"{box.class_id} {' '.join(f'{value:.9f}' for value in box.box_cxcywh)}\n" for box in boxes)


def boxes_to_pixels(boxes_cxcywh: npt.NDArray[np.float64], image_wh: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Fractions (n, 4) as centre, size to pixels (n, 4) as left, top, right, bottom, clipped to the picture.

    >>> boxes_to_pixels(np.array([[0.5, 0.5, 0.5, 0.2]]), (200, 100)).tolist()
    [[50.0, 40.0, 150.0, 60.0]]
    """
    centre, half = boxes_cxcywh[:, :2], boxes_cxcywh[:, 2:] / 2
    corners = np.clip(np.hstack([centre - half, centre + half]), 0.0, 1.0)
    return corners * np.array([*image_wh, *image_wh], dtype=np.float64)
