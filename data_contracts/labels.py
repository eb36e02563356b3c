"""Label files: one row per defect box per picture, in the Ultralytics YOLO text format.

The dialect accepted is the one that the trainer accepts: a UTF-8 byte order mark, CRLF and blank lines are harmless;
everything else that differs is a problem, named with its line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

EDGE_TOLERANCE = 0.01
"""How far outside 0..1 a value may lie, as in the trainer. Boxes that reach over the edge are clipped."""


@dataclass(frozen=True)
class LabelBox:
    """One row: class id, then centre x, centre y, width and height as fractions of the picture."""

    line: int
    class_id: int
    box_cxcywh: tuple[float, float, float, float]


@dataclass(frozen=True)
class LabelProblem:
    """One row that cannot be used. `rule` is a stable name of what it breaks."""

    line: int
    text: str
    rule: str
    expected: str
    got: str


LabelRow = LabelBox | LabelProblem


def parse_label_lines(lines: Iterable[str], class_count: int) -> list[LabelRow]:
    """One entry per non-blank line, boxes and problems alike; the line numbers start at 1."""
    numbered = ((number, line.removeprefix("\ufeff").strip()) for number, line in enumerate(lines, start=1))
    return [_parse_row(number, text, class_count) for number, text in numbered if text]


def _parse_row(line: int, text: str, class_count: int) -> LabelRow:
    def problem(rule: str, expected: str, got: str) -> LabelProblem:
        return LabelProblem(line, text, rule, expected, got)

    fields = text.split()
    if len(fields) != 5:
        expected = "5 numbers separated by spaces: class id, centre x, centre y, width, height"
        hint = " separated by commas" if "," in text and len(fields) == 1 else ""
        return problem("label_columns", expected, f"{len(fields)} fields{hint}: {text[:80]!r}")
    try:
        values = [float(field) for field in fields]
    except ValueError:
        return problem("label_numbers", "5 numbers", repr(text[:80]))
    if not all(map(math.isfinite, values)):
        return problem("label_numbers", "finite numbers", repr(text[:80]))
    if not values[0].is_integer() or not 0 <= values[0] < class_count:
        return problem("class_id", f"a whole number from 0 to {class_count - 1}", fields[0])
    centre_x, centre_y, width, height = values[1:]
    if width <= 0 or height <= 0:
        return problem("box_size", "a width and a height over 0", f"{fields[3]} x {fields[4]}")
    if min(values[1:]) < -EDGE_TOLERANCE or max(values[1:]) > 1 + EDGE_TOLERANCE:
        return problem("box_range", "centre and size as fractions of the picture, 0 to 1", " ".join(fields[1:]))
    return LabelBox(line, int(values[0]), (centre_x, centre_y, width, height))


def boxes_to_pixels(boxes_cxcywh: npt.NDArray[np.float64], image_wh: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Fractions (n, 4) as centre, size to pixels (n, 4) as left, top, right, bottom, clipped to the picture.

    >>> boxes_to_pixels(np.array([[0.5, 0.5, 0.5, 0.2]]), (200, 100)).tolist()
    [[50.0, 40.0, 150.0, 60.0]]
    """
    centre, half = boxes_cxcywh[:, :2], boxes_cxcywh[:, 2:] / 2
    corners = np.clip(np.hstack([centre - half, centre + half]), 0.0, 1.0)
    return corners * np.array([*image_wh, *image_wh], dtype=np.float64)
