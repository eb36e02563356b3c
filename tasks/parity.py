"""Does the sealed bundle find what the trained weights find? Ultralytics' own `predict` is the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from prefect import task
from pydantic import Field

from data_contracts.base import Contract, Fraction, WidthHeight
from data_contracts.dataset import Split
from data_contracts.detections import Detections
from serving.bundle import open_bundle
from serving.images import Image
from tasks import yolo
from tasks.evaluation.matching import pairwise_iou
from tasks.ground_truth import read_ground_truth
from tasks.pictures import bundle_detector, read_picture

SHOWN_FAILURES = 10


class ParityConfig(Contract):
    """What is compared, and how alike it must be. A box is alike by its overlap or by its corners."""

    pictures: int = Field(ge=1, le=500, description="Pictures of the split that are compared as they are.")
    made_up_sizes: tuple[WidthHeight, ...] = Field(description="Sizes of further pictures, made by tiling, pixels.")
    score_floor: Fraction = Field(gt=0, description="Boxes over this, or over the lowest threshold if that is lower.")
    score_margin: Fraction = Field(description="Only boxes this far over the floor must have a partner.")
    iou: Fraction = Field(description="Overlap from which on two boxes are the same.")
    corner_px: float = Field(gt=0, le=10, description="Corner distance up to which two boxes are the same, pixels.")
    score: float = Field(gt=0, le=0.1, description="Largest difference of scores.")
    minimum_compared: int = Field(ge=1, description="Fewer boxes than this prove nothing: the check fails.")


class ParityResult(Contract):
    """How alike both are. The worst figures are those of the compared boxes; null when none was compared."""

    holds: bool
    compared: int = Field(ge=0, description="Boxes that had to have a partner.")
    differing: int = Field(default=0, ge=0, description="Those of them that have none within the tolerance.")
    pictures: int = Field(ge=0)
    worst_iou: float | None
    worst_corner_px: float | None
    worst_score: float | None
    failures: tuple[str, ...] = Field(description="The first of them, in words.")


@dataclass(frozen=True)
class BoxPair:
    """A box and its nearest of the same class on the other side; infinitely far when there is none."""

    words: str
    iou: float
    corner_px: float
    score: float

    def is_same(self, config: ParityConfig) -> bool:
        """Whether both are one box, within the tolerance."""
        return (self.iou >= config.iou or self.corner_px <= config.corner_px) and self.score <= config.score


def tile_to(image: Image, wh: tuple[int, int]) -> Image:
    """A picture of `wh` pixels, repeated from the top left corner of `image` and cut."""
    width, height = wh
    repeats = (math.ceil(height / image.shape[0]), math.ceil(width / image.shape[1]), 1)
    return np.ascontiguousarray(np.tile(image, repeats)[:height, :width])


def pair_boxes(one: Detections, other: Detections, floor: float, words: str) -> list[BoxPair]:
    """Each box of `one` whose score is over `floor`, with the nearest box of its class in `other`."""
    overlaps = pairwise_iou(one.boxes_xyxy_px, other.boxes_xyxy_px)
    pairs = []
    for row in np.flatnonzero(one.scores > floor):
        place = f"{words}, class {one.class_ids[row]} at {one.boxes_xyxy_px[row].round(1).tolist()}"
        same = np.flatnonzero(other.class_ids == one.class_ids[row])
        if not len(same):
            pairs.append(BoxPair(place, 0.0, math.inf, math.inf))
            continue
        partner = same[overlaps[row, same].argmax()]
        corner = float(np.abs(one.boxes_xyxy_px[row] - other.boxes_xyxy_px[partner]).max())
        score = abs(float(one.scores[row]) - float(other.scores[partner]))
        pairs.append(BoxPair(place, float(overlaps[row, partner]), corner, score))
    return pairs


def compare_detections(
    reference: Sequence[Detections],
    found: Sequence[Detections],
    names: Sequence[str],
    floor: float,
    config: ParityConfig,
) -> ParityResult:
    """Both ways: what the reference finds the bundle must find, and nothing else. `names` are those of the pictures."""
    pairs = []
    for expected, got, name in zip(reference, found, names, strict=True):
        pairs += pair_boxes(expected, got, floor, f"{name}: the bundle lacks")
        pairs += pair_boxes(got, expected, floor, f"{name}: only the bundle has")
    failures = [
        f"{pair.words}: nearest IoU {pair.iou:.4f}, corners {pair.corner_px:.2f} px, score {pair.score:.4f} apart"
        for pair in pairs
        if not pair.is_same(config)
    ]
    differing = len(failures)
    if len(pairs) < config.minimum_compared:
        failures.append(f"only {len(pairs)} boxes over {floor:g}: at least {config.minimum_compared} are needed")
    return ParityResult(
        holds=not failures,
        compared=len(pairs),
        differing=differing,
        pictures=len(reference),
        worst_iou=min((pair.iou for pair in pairs), default=None),
        worst_corner_px=_finite(max((pair.corner_px for pair in pairs), default=None)),
        worst_score=_finite(max((pair.score for pair in pairs), default=None)),
        failures=tuple(failures[:SHOWN_FAILURES]),
    )


def _finite(value: float | None) -> float | None:
    """JSON has no infinity: a box without any partner is told in the failures."""
    return value if value is not None and math.isfinite(value) else None


def parity_pictures(files: Sequence[Path], config: ParityConfig) -> list[tuple[str, npt.NDArray[np.uint8]]]:
    """The first pictures as they are, then pictures of made-up sizes tiled from them, with their names."""
    own = [(file.name, read_picture(file)) for file in files[: config.pictures]]
    made_up = [
        (f"{own[index % len(own)][0]} as {wh[0]}x{wh[1]}", tile_to(own[index % len(own)][1], wh))
        for index, wh in enumerate(config.made_up_sizes)
        if own
    ]
    return own + made_up


def compare_with_weights(
    weights: Path, bundle_path: Path, files: Sequence[Path], config: ParityConfig, *, rectangular: bool = False
) -> ParityResult:
    """Compare a bundle with the weights it was made from; `rectangular` shows the reference other padding."""
    bundle = open_bundle(bundle_path)
    spec, rule = bundle.manifest.model, bundle.manifest.verdict
    pictures = parity_pictures(files, config)
    images = [image for _, image in pictures]
    floor = min(config.score_floor, *rule.thresholds)
    reference = yolo.reference_detections(
        weights,
        images,
        image_size=spec.input.wh[0],
        score_floor=floor,
        iou=spec.nms.iou,
        max_detections=spec.nms.max_detections,
        layout=spec.output.layout,
        rectangular=rectangular,
    )
    found = bundle_detector(bundle).detect(images, floor)
    names = [name for name, _ in pictures]
    return compare_detections(reference, found, names, floor + config.score_margin, config)


@task
def check_parity(
    weights: Path, bundle_path: Path, working_copy: Path, home: Path, config: ParityConfig
) -> ParityResult:
    """Compare on pictures of the test split and on pictures of made-up sizes."""
    yolo.configure_ultralytics(home)
    files = [true.picture for true in read_ground_truth(working_copy, Split.TEST)]
    return compare_with_weights(weights, bundle_path, files, config)
