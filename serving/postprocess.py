"""From a model's output for one picture to boxes in that picture.

The same result as Ultralytics' prediction: the best class of each anchor, suppression within each class, best boxes
first. Its arithmetic is repeated in float32 step by step (class offset included), so that a pair of boxes at the
threshold falls on the same side. Two things differ on purpose: a score equal to the floor counts, because a verdict
threshold is reached by equality, and suppression never stops on a clock.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from data_contracts.bundle import ModelSpec, NmsSettings
from data_contracts.detections import Detections
from data_contracts.errors import EngineError, Problem
from data_contracts.letterbox import Letterbox, boxes_to_image

CLASS_OFFSET_PX = 7680
"""Boxes of different classes are moved this far apart, so that one suppression serves all classes."""

SCORE_SLACK = 1e-3
"""Half-precision engines may answer a hair over 1 or under 0."""

BLOCK = 128
"""Boxes that are suppressed at a time: large enough to be fast, small enough to stay in the cache."""

Array = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


def boxes_of(output: Array, spec: ModelSpec, letterbox: Letterbox, score_floor: float) -> Detections:
    """Boxes scoring `score_floor` or more, in pixels of the picture that `letterbox` placed, best first.

    `output` is one picture's: (4 + classes, anchors) for layout raw, (boxes, 6) for end to end.
    Raises EngineError for an output that no model of this bundle can have given: an answer that is not a number would
    otherwise read as "no defect".
    """
    _check_shape(output, spec)
    if spec.output.layout == "raw":
        found = suppress(_raw_candidates(output, score_floor), spec.nms)
    else:
        found = _end_to_end(output, score_floor, spec.nms.max_detections)
    _check_found(found, len(spec.class_names))
    return Detections(
        boxes_to_image(found.boxes_xyxy_px, letterbox), np.minimum(found.scores, np.float32(1)), found.class_ids
    )


def suppress(candidates: Detections, nms: NmsSettings) -> Detections:
    """Greedy non-maximum suppression within each class; candidates over the cap are dropped, worst first."""
    order = np.argsort(-candidates.scores, kind="stable")[: nms.max_candidates]
    ranked = Detections(candidates.boxes_xyxy_px[order], candidates.scores[order], candidates.class_ids[order])
    kept = _greedy(ranked, nms)
    return Detections(ranked.boxes_xyxy_px[kept], ranked.scores[kept], ranked.class_ids[kept])


def _raw_candidates(output: Array, score_floor: float) -> Detections:
    """Anchors whose best class reaches the floor, corners in input pixels."""
    scores = output[4:]
    best = scores.max(axis=0)
    _check_scores(best)
    chosen = best >= np.float32(score_floor)
    centre, size = output[:2, chosen].T, output[2:4, chosen].T
    half = size / np.float32(2)
    corners = np.hstack([centre - half, centre + half])
    return Detections(corners, best[chosen], scores[:, chosen].argmax(axis=0).astype(np.int64))


def _end_to_end(output: Array, score_floor: float, max_detections: int) -> Detections:
    """Rows that reach the floor; the model has suppressed already."""
    _check_scores(output[:, 4])
    rows = output[output[:, 4] >= np.float32(score_floor)]
    rows = rows[np.argsort(-rows[:, 4], kind="stable")][:max_detections]
    if not np.isfinite(rows[:, 5]).all():
        raise _impossible("class ids", "class ids that are not numbers")
    return Detections(rows[:, :4], rows[:, 4], np.rint(rows[:, 5]).astype(np.int64))


def _greedy(ranked: Detections, nms: NmsSettings) -> Indices:
    """Positions of the boxes that stay, block by block: what earlier blocks kept is compared with a block at once."""
    boxes = ranked.boxes_xyxy_px + (ranked.class_ids * CLASS_OFFSET_PX).astype(np.float32)[:, None]
    kept = np.empty(0, np.int64)
    for start in range(0, len(boxes), BLOCK):
        block = np.arange(start, min(start + BLOCK, len(boxes)))
        if len(kept):
            block = block[~overlapping(boxes[kept], boxes[block], nms.iou).any(axis=0)]
        stays = block[_stay(overlapping(boxes[block], boxes[block], nms.iou))]
        kept = np.concatenate([kept, stays]) if len(kept) else stays
        if len(kept) >= nms.max_detections:
            break
    return kept[: nms.max_detections]


def overlapping(better: Array, others: Array, iou: float) -> Flags:
    """Whether each of `better` (m, 4) overlaps each of `others` (n, 4) by more than `iou`: bool (m, n)."""
    (left, top, right, bottom), area = np.ascontiguousarray(better.T)[:, :, None], _areas(better)[:, None]
    (other_left, other_top, other_right, other_bottom), other_area = np.ascontiguousarray(others.T), _areas(others)
    # Two boxes without area give 0 / 0 and suppress nothing; boxes that are no numbers are refused afterwards.
    with np.errstate(invalid="ignore", divide="ignore"):
        width = np.minimum(right, other_right)
        width -= np.maximum(left, other_left)
        np.maximum(width, np.float32(0), out=width)
        height = np.minimum(bottom, other_bottom)
        height -= np.maximum(top, other_top)
        np.maximum(height, np.float32(0), out=height)
        overlap = np.multiply(width, height, out=width)
        union = np.add(area, other_area, out=height)
        union -= overlap
        shares = np.divide(overlap, union, out=overlap)
    return np.asarray(shares > _float32_below(iou))


def _float32_below(value: float) -> np.float32:
    """The largest float32 that is not over `value`: a float32 is over the one exactly when it is over the other.

    Rounded to the nearest, the threshold would lie on the other side of some overlaps.
    """
    nearest = np.float32(value)
    return nearest if float(nearest) <= value else np.nextafter(nearest, np.float32(-np.inf))


def _areas(boxes: Array) -> Array:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def _stay(over: Flags) -> Flags:
    """Which boxes of one block stay, best first, given which pairs of them overlap: bool (n, n) to (n,).

    A row of `over` becomes one integer, bit by bit: a block is decided without an array operation per box.
    """
    rows = np.packbits(over, axis=1, bitorder="little")
    width, packed = rows.shape[1], rows.tobytes()
    gone, stays = 0, np.ones(len(over), dtype=np.bool_)
    for index in range(len(over)):
        if gone >> index & 1:
            stays[index] = False
        else:
            gone |= int.from_bytes(packed[index * width : (index + 1) * width], "little")
    return stays


def _check_shape(output: Array, spec: ModelSpec) -> None:
    axis, size = (0, 4 + len(spec.class_names)) if spec.output.layout == "raw" else (1, 6)
    if output.ndim != 2 or output.shape[axis] != size:
        words = f"2 axes with {size} on axis {axis} ({spec.output.layout}, {len(spec.class_names)} classes)"
        raise _impossible(words, f"shape {output.shape}")


def _check_scores(best: Array) -> None:
    """Also of boxes that nobody would see: not a number or far below 0, they are the sign of a broken engine."""
    if best.size and not best.min() >= -SCORE_SLACK:
        raise _impossible("scores between 0 and 1", f"a score of {best.min():g}")


def _check_found(found: Detections, classes: int) -> None:
    if not np.isfinite(found.boxes_xyxy_px).all():
        raise _impossible("finite boxes", "boxes that are not numbers")
    if len(found) and found.scores.max() > 1 + SCORE_SLACK:
        raise _impossible("scores between 0 and 1", f"a score of {found.scores.max():g}")
    if len(found) and not (found.class_ids.min() >= 0 and found.class_ids.max() < classes):
        raise _impossible(f"class ids from 0 to {classes - 1}", f"{found.class_ids.min()} to {found.class_ids.max()}")


def _impossible(expected: str, got: str) -> EngineError:
    return EngineError(Problem("model output", expected, got, "The model or its engine is broken; do not serve it."))
