"""Which found box is which true box: the one matching rule behind thresholds and operating points."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from data_contracts.detections import Detections

Boxes = npt.NDArray[np.floating]


def pairwise_iou(first_xyxy: Boxes, second_xyxy: Boxes) -> npt.NDArray[np.float64]:
    """Intersection over union of each pair: (n, 4) and (m, 4) to (n, m).

    >>> pairwise_iou(np.array([[0.0, 0, 2, 2]]), np.array([[1.0, 0, 3, 2]])).round(3).tolist()
    [[0.333]]
    """
    first, second = first_xyxy.astype(np.float64)[:, None], second_xyxy.astype(np.float64)[None]
    sides = np.minimum(first[..., 2:], second[..., 2:]) - np.maximum(first[..., :2], second[..., :2])
    overlap = np.clip(sides, 0.0, None).prod(axis=-1)
    union = _areas(first) + _areas(second) - overlap
    overlaps: npt.NDArray[np.float64] = np.divide(overlap, union, out=np.zeros_like(overlap), where=union > 0)
    return overlaps


def _areas(boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    areas: npt.NDArray[np.float64] = np.clip(boxes[..., 2:] - boxes[..., :2], 0.0, None).prod(axis=-1)
    return areas


def match_boxes(
    found: Detections, true_xyxy: Boxes, true_class_ids: npt.NDArray[np.int64], iou: float
) -> npt.NDArray[np.int64]:
    """Index of the true box that each found box takes, or -1: shape (n,).

    Best score first, each found box takes the free true box of its class that it overlaps most, from `iou` on. So the
    matches of the boxes over a threshold are the same whether the rest was there or not.
    """
    taken = np.full(len(found), -1, np.int64)
    if not len(found) or not len(true_xyxy):
        return taken
    overlaps = pairwise_iou(found.boxes_xyxy_px, true_xyxy)
    overlaps[found.class_ids[:, None] != true_class_ids[None]] = -1.0
    for row in np.argsort(-found.scores, kind="stable"):
        best = int(overlaps[row].argmax())
        if overlaps[row, best] >= iou:
            taken[row] = best
            overlaps[:, best] = -1.0
    return taken
