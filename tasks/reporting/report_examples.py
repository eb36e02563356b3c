"""Which pictures the data report shows: a few of each class, of each rule, and pairs that look alike.

Only these are decoded: the report of a large dataset costs as much as that of a small one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from tasks.reporting.drift import Drift
from tasks.reporting.drift_text import LABELS_CHANGED, PICTURES_ADDED
from tasks.reporting.measures import boxes_of
from tasks.reporting.report_pictures import CxCyWh, Mark
from tasks.reporting.report_text import place_of
from tasks.scan import DatasetScan
from tasks.validation.findings import Finding

T = TypeVar("T")

PER_CLASS, PER_RULE = 6, 6
CLASS_PICTURES = 96
"""In all: with many classes each gets fewer."""
PAIRS = 12
NOWHERE = np.empty(0, np.int64)
BOX_COLUMNS = ("centre_x", "centre_y", "width", "height")


@dataclass(frozen=True)
class Example:
    """One picture to show: its path in the dataset, what is marked, and what stands below it."""

    path: str
    marks: tuple[Mark, ...]
    caption: str
    note: str = ""
    readable: bool = True
    """Whether the scan could decode it; another try would cost memory and time for nothing."""


@dataclass(frozen=True)
class Pair:
    """Two pictures that are equal (distance None) or look alike (bits in which their hashes differ)."""

    first: Example
    second: Example
    distance: int | None
    across: bool
    """Whether they lie in different splits."""


class ExampleBook:
    """Looks up what the examples need in the tables of a scan."""

    def __init__(self, scan: DatasetScan) -> None:
        self.class_names = scan.layout.class_names
        self._pictures = scan.pictures.drop_duplicates("path").set_index("path")
        self._of_label = dict(zip(self._pictures["label_path"], self._pictures.index, strict=True))
        self._labels = scan.labels
        self._lines = _positions(scan.labels, "file")
        self._boxes = boxes_of(scan.labels)
        self._boxes_of = _positions(self._boxes, "picture")
        self._readable = set(self._pictures.index[self._pictures["width_px"].notna()])

    def of_class(self, class_id: int) -> list[Example]:
        """Pictures with boxes of one class, from its smallest to its largest box."""
        rows = self._boxes[self._boxes["class_id"] == class_id]
        rows = rows[rows["picture"].isin(self._readable)].drop_duplicates("picture")
        rows = rows.iloc[np.argsort(rows["width"].to_numpy(float) * rows["height"].to_numpy(float), kind="stable")]
        count = min(PER_CLASS, max(1, CLASS_PICTURES // len(self.class_names)))
        chosen = rows.iloc[np.unique(np.linspace(0, len(rows) - 1, count).round().astype(int))] if len(rows) else rows
        return [self._of_box(row) for row in chosen.to_dict("records")]

    def without_objects(self) -> list[Example]:
        """Pictures that are said to hold no object."""
        rows = self._pictures[self._pictures["label_state"].isin(["empty", "listed"])]
        paths = [str(path) for path in rows.index if path in self._readable]
        return [self._whole(path) for path in _some(paths)]

    def of_findings(self, findings: Sequence[Finding]) -> list[Example]:
        """The first pictures that findings of one rule are about, each once, with its first finding."""
        found: dict[str, Example] = {}
        for finding in findings:
            if len(found) == PER_RULE:
                break
            if finding.file not in found and (example := self._of_finding(finding)):
                found[finding.file] = example
        return list(found.values())

    def of_drift(self, drift: Drift) -> dict[str, list[Example]]:
        """Some of the pictures that came, and of those whose labels changed, by the title of their list."""
        came = [self._whole(path) for path in _some(drift.added)]
        changed = [
            self._whole(change.path, f"{change.old_boxes} -> {change.new_boxes} boxes")
            for change in _some(drift.labels)
        ]
        return {PICTURES_ADDED: came, LABELS_CHANGED: changed}

    def of_pairs(self, near: pd.DataFrame, pictures: pd.DataFrame) -> tuple[list[Pair], int]:
        """Exact copies and near duplicates, those across splits first; the first PAIRS, and how many there are."""
        pairs = [*_copies(pictures), *((a, b, bits) for a, b, bits in zip(near["first"], near["second"],
                                                                         near["distance"], strict=True))]  # fmt: skip
        split, paths = pictures["split"].to_numpy(), pictures["path"].to_numpy()
        ordered = sorted(pairs, key=lambda pair: (split[pair[0]] == split[pair[1]], -1 if pair[2] is None else pair[2]))
        shown = [
            Pair(self._whole(str(paths[a])), self._whole(str(paths[b])), bits, bool(split[a] != split[b]))
            for a, b, bits in ordered[:PAIRS]
        ]
        return shown, len(pairs)

    def _of_finding(self, finding: Finding) -> Example | None:
        if finding.file in self._pictures.index:
            return self._whole(finding.file, finding.got)
        path = self._of_label.get(finding.file)
        if path is None:
            return None
        marks = self._line_marks(finding, path) if finding.line else ()
        others = self._marks(path)
        return Example(path, (*others, *marks), place_of(finding), finding.got, path in self._readable)

    def _line_marks(self, finding: Finding, path: str) -> tuple[Mark, ...]:
        """The box of a label line: as it was read, or, where it was not, as far as its numbers make one."""
        lines = self._labels.take(self._lines.get(finding.file, NOWHERE)).to_dict("records")
        rows = [row for row in lines if row["line"] == finding.line]
        boxes = [_box(row) for row in rows if pd.notna(row["class_id"])] or [
            box for row in rows if (box := box_in_text(str(row["text"]), self._image_wh(path)))
        ]
        return tuple(Mark(box, 0, faulty=True) for box in boxes[:1])

    def _of_box(self, row: dict[Any, Any]) -> Example:
        path, box = str(row["picture"]), _box(row)
        others = (mark for mark in self._marks(path) if mark.box_cxcywh != box)
        marks = (*others, Mark(box, int(row["class_id"])))
        return Example(path, marks, path, f"{self._split_of(path)}, {row['width_px']:.0f} x {row['height_px']:.0f} px")

    def _whole(self, path: str, note: str = "") -> Example:
        marks = self._marks(path)
        return Example(path, marks, path, note or self._split_of(path), path in self._readable)

    def _image_wh(self, path: str) -> tuple[float, float]:
        width, height = self._pictures.loc[path, ["width_px", "height_px"]].to_numpy(dtype=np.float64)
        return float(width), float(height)

    def _split_of(self, path: str) -> str:
        return str(self._pictures.at[path, "split"])

    def _marks(self, path: str) -> tuple[Mark, ...]:
        rows = self._boxes.take(self._boxes_of.get(path, NOWHERE)).drop_duplicates("line").to_dict("records")
        return tuple(Mark(_box(row), int(row["class_id"]), meant=False) for row in rows)


def _box(row: dict[Any, Any]) -> CxCyWh:
    centre_x, centre_y, width, height = (float(row[column]) for column in BOX_COLUMNS)
    return centre_x, centre_y, width, height


def box_in_text(text: str, image_wh: tuple[float, float]) -> CxCyWh | None:
    """The part inside the picture of the box that an unusable label line seems to mean; None where there is none.

    Numbers over 2 are taken as pixels.

    >>> box_in_text("7 0.5 0.5 0.2 0.1", (640, 480)), box_in_text("0,320,240,64,48", (640, 480))
    ((0.5, 0.5, 0.2, 0.1), (0.5, 0.5, 0.1, 0.1))
    >>> box_in_text("scratch", (640, 480)) is None
    True
    """
    try:
        numbers = np.array(text.replace(",", " ").split()[1:5], dtype=np.float64)
    except ValueError:
        return None
    if len(numbers) < 4 or not np.isfinite(numbers).all():
        return None
    scaled = numbers / (*image_wh, *image_wh) if numbers.max() > 2 else numbers
    first = np.clip(scaled[:2] - scaled[2:] / 2, 0, 1)
    last = np.clip(scaled[:2] + scaled[2:] / 2, 0, 1)
    if (last <= first).any():
        return None
    (centre_x, centre_y), (width, height) = ((first + last) / 2).round(9).tolist(), (last - first).round(9).tolist()
    return centre_x, centre_y, width, height


def _some(items: Sequence[T]) -> Sequence[T]:
    """A few of them, evenly taken."""
    return items[:: max(1, len(items) // PER_CLASS)][:PER_CLASS]


def _copies(pictures: pd.DataFrame) -> Iterable[tuple[int, int, None]]:
    """Positions of exact copies: the first picture of each content with every other one of another path."""
    paths = pictures["path"].to_numpy()
    repeated = np.flatnonzero(pictures["sha256"].duplicated(keep=False))
    of_content: dict[str, int] = {}
    for position, content in zip(repeated.tolist(), pictures["sha256"].take(repeated), strict=True):
        first = of_content.setdefault(content, position)
        if paths[position] != paths[first]:
            yield first, position, None


def _positions(table: pd.DataFrame, column: str) -> dict[str, npt.NDArray[np.int64]]:
    """Where in the table each value of a column stands."""
    return {str(value): np.asarray(rows) for value, rows in table.groupby(column).indices.items()}
