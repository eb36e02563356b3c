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

import codecs
from collections.abc import Iterable
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt

from data_contracts.label_rows import CxCyWh, RowError, Severity, read_row

MOST_ROW_TEXT = 400
"""So many characters of a row are kept."""

_ENCODING = "text in UTF-8"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


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


def parse_label_bytes(data: bytes, class_count: int) -> list[LabelRow]:
    """The rows of one label file; one that is no UTF-8 text is one problem, with the line of its first wrong byte."""
    if got := _no_text(data):
        return [LabelProblem(0, "", "label_encoding", _ENCODING, got)]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        got = f"the byte {data[error.start]:#04x}, as in files of other encodings"
        return [LabelProblem(line, "", "label_encoding", _ENCODING, got)]
    return parse_label_lines(text.splitlines(), class_count)


def _no_text(data: bytes) -> str:
    """What a file that is no UTF-8 text as a whole is instead."""
    if data and not data.strip(b"\0"):
        return "nothing but zero bytes"
    zeros = data.count(b"\0")
    if data.startswith(_UTF_16) or (zeros and abs(len(data) - 2 * zeros) <= 1):
        return "UTF-16"
    return "zero bytes, as in a file that was cut off or is no text" if zeros else ""


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
                row = LabelProblem(number, row.text, "label_duplicate", "every box once", got, "warning")
        rows.append(row)
    return rows


def _parse_row(line: int, text: str, class_count: int) -> LabelRow:
    kept = text[:MOST_ROW_TEXT]
    try:
        class_id, box, remarks = read_row(text, class_count)
    except RowError as error:
        return LabelProblem(line, kept, *astuple(error.remark))
    warnings = tuple(LabelProblem(line, kept, *astuple(remark)) for remark in remarks)
    return LabelBox(line, class_id, box, kept, warnings)


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
