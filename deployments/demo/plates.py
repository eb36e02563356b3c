"""Sample data: metal plates with scratches, pits and stains, made from a seed.

A plate depends on the seed, its set and its number in it only: more plates leave the first ones as they were.
Every fifth plate is free of defects; sizes and file formats go round as well, so that small sets have all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import cv2
import numpy as np
import numpy.typing as npt
import yaml
from pydantic import Field

from data_contracts.base import Contract
from data_contracts.dataset import Split
from data_contracts.detections import Verdict
from data_contracts.errors import DatasetError, Problem
from deployments.demo.plate_defects import CLASS_NAMES, Defect, make_defect
from deployments.demo.plate_surface import Surface, make_surface, photograph

SIZES_WH = ((224, 224), (256, 176), (176, 256), (240, 184), (211, 157), (200, 200), (163, 207))
CLEAN_EVERY = 5
PNG_EVERY = 8
JPEG_QUALITY = 92
PLACING_TRIES = 40
CLEARANCE_PX = 5

_STREAMS = {Split.TRAIN: 0, Split.VAL: 1, Split.TEST: 2, None: 3}


class PlateCounts(Contract):
    """How many plates of each set."""

    train: int = Field(ge=1)
    val: int = Field(ge=1)
    test: int = Field(ge=1)
    held_out: int = Field(ge=0, description="Pictures outside the dataset, for inspection over HTTP.")


@dataclass(frozen=True, eq=False)
class Plate:
    """One picture, RGB (h, w, 3), and its defects."""

    picture: npt.NDArray[np.uint8]
    defects: tuple[Defect, ...]


@dataclass(frozen=True)
class HeldOutPlate:
    """A picture that no training ever sees, and the verdict it deserves."""

    picture: Path
    expected: Verdict


def write_plates(folder: Path, seed: int, counts: PlateCounts) -> None:
    """The dataset in `folder` (YOLO layout) and the unseen pictures in `held_out_folder(folder)`, all or nothing."""
    _refuse_existing(folder)
    draft = folder.with_name(f".{folder.name}-{uuid4().hex}")
    for split in Split:
        for index in range(getattr(counts, split)):
            plate, name = make_plate(seed, split, index), _name(split, index)
            _write_picture(draft / "images" / split / name, plate.picture)
            _write_labels((draft / "labels" / split / name).with_suffix(".txt"), plate)
    (draft / "data.yaml").write_text(_data_yaml(), encoding="utf-8")
    write_held_out(held_out_folder(folder), seed, counts.held_out)
    draft.rename(folder)


def write_held_out(folder: Path, seed: int, count: int) -> tuple[HeldOutPlate, ...]:
    """`count` unseen pictures, each with its label file beside it; what is there already is written again."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        plate, file = make_plate(seed, None, index), folder / _name("plate", index)
        _write_labels(file.with_suffix(".txt"), plate)
        _write_picture(file, plate.picture)
    return read_held_out(folder)


def read_held_out(folder: Path) -> tuple[HeldOutPlate, ...]:
    """The unseen pictures of a folder, by name."""
    pictures = sorted(file for file in folder.iterdir() if file.suffix in (".jpg", ".png"))
    return tuple(HeldOutPlate(file, _expected_verdict(file.with_suffix(".txt"))) for file in pictures)


def held_out_folder(dataset: Path) -> Path:
    """Beside the dataset, so that pinning the dataset does not take the unseen pictures along."""
    return dataset.with_name(f"{dataset.name}-held-out")


def make_plate(seed: int, split: Split | None, index: int) -> Plate:
    """Plate number `index` of a split, or of the unseen ones (None)."""
    rng = np.random.default_rng([seed, _STREAMS[split], index])
    surface = make_surface(rng, SIZES_WH[index % len(SIZES_WH)])
    wanted = [] if index % CLEAN_EVERY == CLEAN_EVERY - 1 else _wanted_classes(rng, index)
    defects: list[Defect] = []
    for class_id in wanted:
        defects += _placed(rng, class_id, surface, defects)
    light_rgb = surface.light[..., None] * surface.cast_rgb
    for defect in defects:
        light_rgb += defect.change[..., None] * defect.tint_rgb
    return Plate(photograph(rng, light_rgb), tuple(defects))


def _wanted_classes(rng: np.random.Generator, index: int) -> list[int]:
    """One to six classes; the first goes round, so that no class is rare."""
    more = rng.integers(0, len(CLASS_NAMES), int(rng.choice(6, p=[0.15, 0.15, 0.25, 0.2, 0.15, 0.1])))
    return [index % len(CLASS_NAMES), *map(int, more)]


def _placed(rng: np.random.Generator, class_id: int, surface: Surface, others: list[Defect]) -> list[Defect]:
    """The defect where it lies whole on the plate and clear of the others; none when there is no room."""
    height, width = surface.light.shape
    for _ in range(PLACING_TRIES):
        defect = make_defect(rng, class_id, (width, height))
        if _lies_free(defect, surface.usable, others):
            return [defect]
    return []


def _lies_free(defect: Defect, usable: npt.NDArray[np.bool_], others: list[Defect]) -> bool:
    left, top, right, bottom = defect.box_xyxy_px
    height, width = usable.shape
    if left < 2 or top < 2 or right > width - 2 or bottom > height - 2:
        return False
    if not usable[np.abs(defect.change) > 2].all():
        return False
    boxes = [other.box_xyxy_px for other in others]
    gap = CLEARANCE_PX
    return not any(left < b[2] + gap and b[0] < right + gap and top < b[3] + gap and b[1] < bottom + gap for b in boxes)


def _label_lines(plate: Plate) -> list[str]:
    height, width = plate.picture.shape[:2]
    lines = []
    for defect in plate.defects:
        left, top, right, bottom = defect.box_xyxy_px
        centre = f"{(left + right) / 2 / width:.6f} {(top + bottom) / 2 / height:.6f}"
        lines.append(f"{defect.class_id} {centre} {(right - left) / width:.6f} {(bottom - top) / height:.6f}\n")
    return lines


def _write_labels(file: Path, plate: Plate) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(_label_lines(plate)), encoding="utf-8")


def _write_picture(file: Path, picture: npt.NDArray[np.uint8]) -> None:
    options = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY] if file.suffix == ".jpg" else []
    ok, data = cv2.imencode(file.suffix, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), options)
    if not ok:
        raise DatasetError(Problem(str(file), "a picture that OpenCV can encode", "a refusal", "Install OpenCV anew."))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data.tobytes())


def _name(prefix: str, index: int) -> str:
    return f"{prefix}-{index:04d}{'.png' if index % PNG_EVERY == PNG_EVERY - 1 else '.jpg'}"


def _data_yaml() -> str:
    splits = {split.value: f"images/{split}" for split in Split}
    return yaml.safe_dump({"path": ".", **splits, "names": dict(enumerate(CLASS_NAMES))}, sort_keys=False)


def _expected_verdict(labels: Path) -> Verdict:
    return Verdict.NG if labels.read_text(encoding="utf-8").strip() else Verdict.OK


def _refuse_existing(folder: Path) -> None:
    if folder.exists():
        action = "Choose another folder, or delete this one."
        raise DatasetError(Problem(str(folder), "a folder that does not exist yet", "an existing one", action))
