"""The golden pictures of a bundle: which they are, and what its detector finds in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from data_contracts.bundle import GOLDEN_DIR, GOLDEN_FILE, GoldenPicture, GoldenSet, VerdictRule
from data_contracts.errors import DatasetError, Problem
from serving.detector import Detector
from serving.verdict import judge
from tasks.ground_truth import GroundTruth
from tasks.pictures import read_picture


def choose_golden(truth: Sequence[GroundTruth], count: int) -> tuple[GroundTruth, ...]:
    """Pictures that show most between them: one without defects, one that is not square, then rare classes first.

    Worked example: of a good picture, two with class 0 and one with class 1, three are wished for: the good one, the
    one with class 1 and the first with class 0. Raises DatasetError when there is no picture.
    """
    if not truth:
        raise DatasetError(Problem("golden pictures", "pictures in the validation split", "none", "Add some."))
    chosen: list[GroundTruth] = []
    wishes = [
        [true for true in truth if not len(true.class_ids)],
        [true for true in truth if len(true.class_ids) and true.image_wh[0] != true.image_wh[1]],
    ]
    for wish in wishes:
        chosen += [true for true in wish[:1] if not _has(chosen, true)]
    rest = list(truth)
    while len(chosen) < min(count, len(truth)):
        rest = [true for true in rest if not _has(chosen, true)]
        chosen.append(max(rest, key=lambda true: _news(true, chosen, truth)))
    return tuple(chosen[:count])


def _has(chosen: Sequence[GroundTruth], true: GroundTruth) -> bool:
    return any(one is true for one in chosen)


def _news(true: GroundTruth, chosen: Sequence[GroundTruth], truth: Sequence[GroundTruth]) -> float:
    """How much a picture adds: classes not yet shown, the rarer the more; a picture with defects before one without."""
    shown = {int(class_id) for one in chosen for class_id in one.class_ids}
    ids = [int(class_id) for one in truth for class_id in one.class_ids]
    news = sum(1 / ids.count(class_id) for class_id in {int(class_id) for class_id in true.class_ids} - shown)
    return news + (1e-6 if len(true.class_ids) else 0.0)


def write_golden(
    folder: Path, chosen: Sequence[GroundTruth], detector: Detector, rule: VerdictRule, floor: float
) -> GoldenSet:
    """Write the golden pictures as 8-bit RGB PNG and record what the detector finds in them, one by one."""
    (folder / GOLDEN_DIR).mkdir(parents=True)
    pictures = []
    for number, true in enumerate(chosen):
        image = read_picture(true.picture)
        name = f"{GOLDEN_DIR}/{number}.png"
        if not cv2.imwrite(str(folder / name), np.ascontiguousarray(image[:, :, ::-1])):
            raise OSError(f"{folder / name}: could not be written")
        (found,) = detector.detect([image], floor)
        verdict, _ = judge(found, rule)
        pictures.append(GoldenPicture(file=name, verdict=verdict, detections=found.records(detector.spec.class_names)))
    golden = GoldenSet(score_floor=floor, pictures=tuple(pictures))
    (folder / GOLDEN_FILE).write_text(golden.to_json(), encoding="utf-8")
    return golden
