"""Scans made of values alone: the two tables of a dataset without its files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from data_contracts.dataset import Split, label_path_of
from tasks.datasets.dataset_layout import DatasetLayout
from tasks.scan import DatasetScan
from tasks.scanning.scan_rows import LabelLine, PictureRow

Box = tuple[int, float, float, float, float]


@dataclass(frozen=True)
class Made:
    """One picture: its split is in its path; `content` is its path by default; `bad_lines` are rows without a box."""

    path: str
    boxes: Sequence[Box] = ()
    content: str = ""
    wh: tuple[int, int] | None = (640, 480)
    brightness: float = 120.0
    state: str = ""
    bad_lines: Sequence[str] = ()


def scan_of(*pictures: Made, class_names: Sequence[str] = ("pit", "scratch"), root: Path = Path("none")) -> DatasetScan:
    """The scan that these pictures would give; splits train and val always exist."""
    splits: dict[Split, list[PurePosixPath]] = {Split.TRAIN: [], Split.VAL: []}
    for picture in pictures:
        splits.setdefault(Split(_split(picture)), []).append(PurePosixPath(picture.path))
    layout = DatasetLayout(root, tuple(class_names), {split: tuple(sorted(paths)) for split, paths in splits.items()})
    rows = pd.DataFrame([_picture_row(picture) for picture in pictures], columns=list(PictureRow.__dataclass_fields__))
    labels = pd.DataFrame(
        [row for picture in pictures for row in _label_rows(picture)], columns=list(LabelLine.__dataclass_fields__)
    )
    return DatasetScan(layout, rows, labels, ())


def _split(picture: Made) -> str:
    return PurePosixPath(picture.path).parts[1]


def _picture_row(picture: Made) -> dict[str, Any]:
    readable = {"mode": "RGB", "bit_depth": 8, "contrast": 20.0, "sharpness": 300.0, "brightness": picture.brightness}
    return {
        "path": picture.path, "split": _split(picture), "size_bytes": 1000, "sha256": picture.content or picture.path,
        "perceptual_hash": "0" * 16, "label_path": str(label_path_of(PurePosixPath(picture.path))),
        "label_state": picture.state or ("labelled" if picture.boxes else "empty"), "boxes": len(picture.boxes),
        "labels_key": repr(sorted(picture.boxes)), "width_px": picture.wh[0] if picture.wh else None,
        "height_px": picture.wh[1] if picture.wh else None, **(readable if picture.wh else {}),
    }  # fmt: skip


def _label_rows(picture: Made) -> list[dict[str, Any]]:
    known = {"file": str(label_path_of(PurePosixPath(picture.path))), "picture": picture.path, "split": _split(picture)}
    width, height = picture.wh or (None, None)
    boxes = [
        {**known, "line": line, "text": " ".join(map(str, box)), "class_id": box[0], "centre_x": box[1],
         "centre_y": box[2], "width": box[3], "height": box[4], "width_px": width and box[3] * width,
         "height_px": height and box[4] * height}
        for line, box in enumerate(picture.boxes, start=1)
    ]  # fmt: skip
    bad = [
        {**known, "line": len(boxes) + number, "text": text, "rule": "class_id", "expected": "0 to 1", "got": text}
        for number, text in enumerate(picture.bad_lines, start=1)
    ]
    return [*boxes, *bad]
