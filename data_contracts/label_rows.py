"""One row of a label file: its fields become a class id and a box, or the reason why they are none.

Numbers are those of JSON and of every exporter: digits with a decimal point, an exponent where wanted. What Python and
NumPy read besides (`nan`, `1_000`, digits of other scripts) is no number here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

EDGE_TOLERANCE = 0.01
"""How far outside 0..1 a value may lie, as in the trainer. Boxes that reach over the edge are clipped."""

CLIP_NOTICE = 0.001
"""A corner this far over the edge is reported; less is rounding in the exporter."""

MOST_TEXT = 120
"""So many characters of a row are kept for people; outlines of hundreds of corners are longer."""

CxCyWh = tuple[float, float, float, float]
Severity = Literal["error", "warning"]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_COLUMNS = "5 numbers separated by spaces: class id, centre x, centre y, width, height"


@dataclass(frozen=True)
class Remark:
    """What is wrong with a row, or how it was read: rule, expected, got."""

    rule: str
    expected: str
    got: str
    severity: Severity = "error"


class RowError(ValueError):
    """A row that gives no box."""

    def __init__(self, rule: str, expected: str, got: str, severity: Severity = "error") -> None:
        super().__init__(rule)
        self.remark = Remark(rule, expected, got, severity)


def read_row(text: str, class_count: int) -> tuple[int, CxCyWh, list[Remark]]:
    """Class id, box inside the picture and remarks of a row. Raises RowError for a row that gives no box."""
    class_id, box, remarks = _read_fields(text, class_count)
    clipped, note = clip_box(box)
    if min(clipped[2:]) <= 0:
        raise RowError("box_zero", "a box inside the picture", "a box outside its edge", "warning")
    return class_id, clipped, [*remarks, note] if note else remarks


def _read_fields(text: str, class_count: int) -> tuple[int, CxCyWh, list[Remark]]:
    if text.startswith("#"):
        raise RowError("label_comment", "rows of numbers only", quoted(text), "warning")
    fields = text.split()
    _refuse_name(fields, class_count)
    if len(fields) < 5 or (len(fields) > 6 and len(fields) % 2 == 0):
        raise _columns_error(text, fields)
    class_id = _read_class_id(fields[0], text, class_count)
    values = _read_numbers(fields[1:], text)
    if len(values) == 4:
        return class_id, _read_box(values), []
    if len(values) == 5:
        return class_id, _read_box(values[:4]), [_confidence_note(values[4], fields)]
    return class_id, _read_polygon(values), [_polygon_note(values)]


def quoted(text: str) -> str:
    """The text as people see it in a message, cut where it is long.

    >>> quoted("0\\t0.5"), len(quoted("0 0.25 " * 99))
    ("'0\\\\t0.5'", 125)
    """
    return repr(text) if len(text) <= MOST_TEXT else repr(text[:MOST_TEXT]) + " .."


def _refuse_name(fields: Sequence[str], class_count: int) -> None:
    """Refuse words before four numbers or more: a class by its name."""
    words = next((at for at, field in enumerate(fields) if _NUMBER.fullmatch(field)), len(fields))
    name = " ".join(fields[:words])
    if len(fields) - words >= 4 and any(char.isalpha() for char in name) and name.lower() not in _NO_NAMES:
        raise RowError("class_name", _ids(class_count), f"the word {quoted(name)}")


_NO_NAMES = frozenset({"nan", "inf", "-inf", "infinity", "null", "none"})


def _ids(class_count: int) -> str:
    return f"a class id: a whole number from 0 to {class_count - 1}"


def _columns_error(text: str, fields: Sequence[str]) -> RowError:
    hint = _separator(text) if len(fields) < 5 else ""
    count = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
    return RowError("label_columns", _COLUMNS, f"{count}{hint}: {quoted(text)}")


def _separator(text: str) -> str:
    """What seems to stand between the numbers instead of a space."""
    found = next((word for mark, word in ((";", "semicolons"), (",", "commas"), ("|", "bars")) if mark in text), "")
    return f" separated by {found}" if found else ""


def _read_class_id(field: str, text: str, class_count: int) -> int:
    value = _read_numbers([field], text)[0]
    if not value.is_integer() or not 0 <= value < class_count:
        raise RowError("class_id", _ids(class_count), field)
    return int(value)


def _read_numbers(fields: Sequence[str], text: str) -> list[float]:
    wrong = next((field for field in fields if not _NUMBER.fullmatch(field)), None)
    if wrong is not None:
        raise RowError("label_numbers", "numbers such as 0.25, separated by spaces", _wrong_number(wrong, text))
    values = [float(field) for field in fields]
    if not all(map(math.isfinite, values)):
        raise RowError("label_numbers", "finite numbers", quoted(text))
    return values


def _wrong_number(field: str, text: str) -> str:
    if "," in field.rstrip(",;"):
        return f"commas inside the numbers: {quoted(text)}"
    hint = _separator(text)
    return f"numbers{hint}: {quoted(text)}" if hint else f"{quoted(field)} in the row {quoted(text)}"


def _check_range(values: Sequence[float]) -> None:
    if min(values) < -EDGE_TOLERANCE or max(values) > 1 + EDGE_TOLERANCE:
        hint = " (pixels, not divided by the picture's size?)" if max(values) > 2 else ""
        got = " ".join(f"{value:g}" for value in values[:8]) + (" .." if len(values) > 8 else "") + hint
        raise RowError("box_range", "centre and size as fractions of the picture, 0 to 1", got)


def _read_box(values: Sequence[float]) -> CxCyWh:
    centre_x, centre_y, width, height = values
    size = f"{width:g} x {height:g}"
    if width < 0 or height < 0:
        raise RowError("box_size", "a width and a height over 0", size)
    _check_range(values)
    if width == 0 or height == 0:
        raise RowError("box_zero", "a width and a height over 0", size, "warning")
    return centre_x, centre_y, width, height


def _read_polygon(values: Sequence[float]) -> CxCyWh:
    """The extent of a polygon x1 y1 x2 y2 ..; four corners must make a convex shape."""
    _check_range(values)
    xs, ys = values[0::2], values[1::2]
    if len(xs) == 4 and not _is_convex(list(zip(xs, ys, strict=True))):
        # Exporters that leave no final newline glue two rows into one: "0.25" + "0" gives 9 columns too.
        got = "9 numbers that are no quadrilateral, as when two rows are joined into one"
        raise RowError("label_columns", "5 numbers, or the corners of an outline", got)
    left, right, top, bottom = min(xs), max(xs), min(ys), max(ys)
    if left == right or top == bottom:
        raise RowError("box_zero", "an outline with an area", "corners on one line", "warning")
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
    """Whether the corners turn one way only, and do not all lie on one line.

    >>> _is_convex([(0, 0), (1, 0), (1, 1), (0, 1)]), _is_convex([(0, 0), (1, 1), (1, 0), (0, 1)])
    (True, False)
    """
    sides = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise([*points, points[0]])]
    turns = [a[0] * b[1] - a[1] * b[0] for a, b in pairwise([*sides, sides[0]])]
    return any(turns) and (all(turn >= 0 for turn in turns) or all(turn <= 0 for turn in turns))


def _confidence_note(value: float, fields: Sequence[str]) -> Remark:
    if not 0 <= value <= 1:
        raise _columns_error(" ".join(fields), fields)
    got = f"a sixth, {fields[5]}, as models write their confidence"
    return Remark("label_confidence", "5 columns", got, "warning")


def _polygon_note(values: Sequence[float]) -> Remark:
    got = f"an outline of {len(values) // 2} corners, read as its extent"
    return Remark("label_polygon", "a box: centre x, centre y, width, height", got, "warning")


def clip_box(box: CxCyWh) -> tuple[CxCyWh, Remark | None]:
    """The part of the box inside the picture, and a note when more than rounding was cut off.

    >>> clip_box((0.95, 0.5, 0.2, 0.2))[0]
    (0.925, 0.5, 0.15, 0.2)
    """
    centre_x, centre_y, width, height = box
    corners = (centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2)
    over = max(0.0, -corners[0], -corners[1], corners[2] - 1, corners[3] - 1)
    if over == 0:
        return box, None
    left, top, right, bottom = (min(max(value, 0.0), 1.0) for value in corners)
    got = f"a side over the edge by {over:.1%} of the picture"
    note = Remark("box_clipped", "a box inside the picture", got, "warning")
    return _rounded((left, top, right, bottom)), note if over > CLIP_NOTICE else None
