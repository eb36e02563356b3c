"""The labelled boxes of a working copy in pixels of the displayed picture: what evaluation compares detections with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt
from pydantic import Field

from data_contracts.base import Contract, WidthHeight
from data_contracts.dataset import Split
from data_contracts.detections import Pixels
from data_contracts.labels import LabelBox, boxes_to_pixels

TRUTH_FILE = "ground_truth.json"


class PictureTruth(Contract):
    """One picture of the working copy, as stored."""

    picture: str = Field(description="Path relative to the working copy.")
    image_wh: WidthHeight
    boxes_xyxy_px: tuple[tuple[Pixels, Pixels, Pixels, Pixels], ...]
    class_ids: tuple[int, ...]


class TruthFile(Contract):
    """ground_truth.json: the pictures of each split."""

    splits: dict[Split, tuple[PictureTruth, ...]]


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """One picture and its boxes: boxes_xyxy_px float32 (n, 4), class_ids int64 (n,), both in label order."""

    picture: Path
    image_wh: tuple[int, int]
    boxes_xyxy_px: npt.NDArray[np.float32]
    class_ids: npt.NDArray[np.int64]


def picture_truth(place: PurePosixPath, image_wh: tuple[int, int], boxes: Iterable[LabelBox]) -> PictureTruth:
    """The stored form of one picture's boxes."""
    listed = list(boxes)
    fractions = np.array([box.box_cxcywh for box in listed], np.float64).reshape(-1, 4)
    corners = [(box[0], box[1], box[2], box[3]) for box in boxes_to_pixels(fractions, image_wh).round(4).tolist()]
    return PictureTruth(
        picture=str(place),
        image_wh=image_wh,
        boxes_xyxy_px=tuple(corners),
        class_ids=tuple(box.class_id for box in listed),
    )


def write_ground_truth(folder: Path, splits: Mapping[Split, Iterable[PictureTruth]]) -> None:
    """Write ground_truth.json."""
    stored = TruthFile(splits={split: tuple(pictures) for split, pictures in splits.items()})
    (folder / TRUTH_FILE).write_text(stored.model_dump_json(), "utf-8")


def read_ground_truth(folder: Path, split: Split) -> tuple[GroundTruth, ...]:
    """The pictures of one split of the working copy at `folder`, in the order of their names."""
    stored = TruthFile.model_validate_json((folder / TRUTH_FILE).read_bytes())
    return tuple(
        GroundTruth(
            folder / truth.picture,
            truth.image_wh,
            np.array(truth.boxes_xyxy_px, np.float32).reshape(-1, 4),
            np.array(truth.class_ids, np.int64),
        )
        for truth in stored.splits[split]
    )
