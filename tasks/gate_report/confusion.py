"""What was taken for what: the boxes over their thresholds against the true boxes of all classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from data_contracts.detections import Detections
from tasks.evaluation.matching import match_boxes
from tasks.ground_truth import GroundTruth

Counts = npt.NDArray[np.int64]


def match_all(found: Detections, true: GroundTruth, iou: float) -> tuple[Counts, Counts]:
    """For each found box the true box of its class that it takes, or -1; and of another class, or -1.

    What is left after the matches that the operating point counts is matched again without looking at classes.
    """
    right = match_boxes(found, true.boxes_xyxy_px, true.class_ids, iou)
    rest, free = np.flatnonzero(right < 0), np.setdiff1d(np.arange(len(true.class_ids)), right)
    left = found.where(right < 0)
    classless = Detections(left.boxes_xyxy_px, left.scores, np.zeros_like(left.class_ids))
    taken = match_boxes(classless, true.boxes_xyxy_px[free], np.zeros(len(free), np.int64), iou)
    wrong = np.full(len(found), -1, np.int64)
    wrong[rest[taken >= 0]] = free[taken[taken >= 0]]
    return right, wrong


def confusion_matrix(truth: Sequence[GroundTruth], found: Sequence[Detections], class_count: int, iou: float) -> Counts:
    """Rows are true, columns found, the last of both is background: int64 (classes + 1, classes + 1).

    `found` are boxes over their thresholds in classes of the dataset. A pair of the same class that the operating point
    counts stands on the diagonal, so the diagonal is `found` of the per-class results.
    """
    matrix = np.zeros((class_count + 1, class_count + 1), np.int64)
    for true, boxes in zip(truth, found, strict=True):
        right, wrong = match_all(boxes, true, iou)
        taken = np.maximum(right, wrong)
        rows = np.append(true.class_ids, class_count)[taken]  # -1 is the last: background
        np.add.at(matrix, (rows, boxes.class_ids), 1)
        missed = np.setdiff1d(np.arange(len(true.class_ids)), taken)
        np.add.at(matrix, (true.class_ids[missed], class_count), 1)
    return matrix
