"""Does an answer equal a recorded one, within the bundle's tolerance?"""

from __future__ import annotations

import numpy as np

from data_contracts.bundle import GoldenPicture, Tolerance, VerdictRule
from data_contracts.detections import Detections
from data_contracts.errors import Problem
from serving.postprocess import overlapping
from serving.verdict import judge

_ACTION = "Do not serve this bundle on this engine."


def compare(
    picture: GoldenPicture, found: Detections, rule: VerdictRule, tolerance: Tolerance, score_floor: float
) -> list[Problem]:
    """All differences beyond the tolerance, in boxes and verdict."""
    problems = compare_boxes(picture, found, tolerance, score_floor)
    return problems + _check_verdict(picture, found, rule, tolerance)


def compare_decisions(
    picture: GoldenPicture, found: Detections, rule: VerdictRule, tolerance: Tolerance, iou: float
) -> list[Problem]:
    """Differences in what is decided, for precisions that move all numbers a little; the verdict must stand too.

    A box counts that stands clear of its class's threshold, by more than the tolerance of scores. The other answer must
    have the same defect over the threshold: a box of that class within the tolerance of pixels, or one that overlaps by
    more than `iou`, as of two such boxes suppression keeps only the better, and which one that is may change.

    Worked example: with threshold 0.5 and tolerance 0.09, a box recorded with 0.60 must be found with 0.50 or more;
    one with 0.58 may be gone, and one of 0.58 may be new.
    """
    recorded = Detections.from_records(picture.detections)
    thresholds = np.array(rule.thresholds, dtype=np.float32)
    problems = [
        Problem(picture.file, f"{words} or the same defect", "nothing over the threshold", _ACTION)
        for words in _without_counterpart(recorded, found, thresholds, tolerance, iou)
    ]
    problems += [
        Problem(picture.file, "no defect beyond the recorded ones", words, _ACTION)
        for words in _without_counterpart(found, recorded, thresholds, tolerance, iou)
    ]
    return problems + _check_verdict(picture, found, rule, tolerance)


def _without_counterpart(
    ones: Detections, others: Detections, thresholds: np.ndarray, tolerance: Tolerance, iou: float
) -> list[str]:
    """Those of `ones` that stand clear of their threshold and have no counterpart over it in `others`, in words."""
    clear, rest = ones.over(thresholds + np.float32(tolerance.score)), others.over(thresholds)
    corners = np.abs(clear.boxes_xyxy_px[:, None] - rest.boxes_xyxy_px[None]).max(axis=2)
    same = (corners <= tolerance.box_px) | overlapping(clear.boxes_xyxy_px, rest.boxes_xyxy_px, iou)
    lonely = ~(same & (clear.class_ids[:, None] == rest.class_ids[None])).any(axis=1)
    left = clear.where(lonely)
    rows = zip(left.class_ids, left.scores, left.boxes_xyxy_px, strict=True)
    return [_words(int(class_id), score, box) for class_id, score, box in rows]


def compare_boxes(picture: GoldenPicture, found: Detections, tolerance: Tolerance, score_floor: float) -> list[Problem]:
    """One problem per box beyond the tolerance. Boxes that close to `score_floor` may come or go.

    Boxes are paired by class, the best recorded box first, each with the nearest box that is still free.
    """
    recorded = Detections.from_records(picture.detections)
    problems: list[Problem] = []
    free = np.ones(len(found), dtype=np.bool_)
    for box, score, class_id in zip(recorded.boxes_xyxy_px, recorded.scores, recorded.class_ids, strict=True):
        words = _words(class_id, score, box)
        partner, distance = _nearest(box, int(class_id), found, free)
        if partner is None or distance > tolerance.box_px:
            if score > score_floor + tolerance.score:
                got = "nothing" if partner is None else f"its nearest box {distance:.2f} px away"
                problems.append(Problem(picture.file, f"{words} within {tolerance.box_px:g} px", got, _ACTION))
            continue
        free[partner] = False
        if abs(float(found.scores[partner] - score)) > tolerance.score:
            got = f"score {found.scores[partner]:.4f}"
            problems.append(Problem(picture.file, f"{words} within {tolerance.score:g} of its score", got, _ACTION))
    return problems + _surplus(picture, found.where(free), tolerance, score_floor)


def _nearest(box: np.ndarray, class_id: int, found: Detections, free: np.ndarray) -> tuple[int | None, float]:
    """Position of the nearest free box of the class, and its largest corner distance in pixels."""
    candidates = np.flatnonzero(free & (found.class_ids == class_id))
    if not len(candidates):
        return None, 0.0
    distances = np.abs(found.boxes_xyxy_px[candidates] - box).max(axis=1)
    nearest = int(distances.argmin())
    return int(candidates[nearest]), float(distances[nearest])


def _surplus(picture: GoldenPicture, found: Detections, tolerance: Tolerance, score_floor: float) -> list[Problem]:
    over = found.where(found.scores > score_floor + tolerance.score)
    return [
        Problem(picture.file, "no box beyond the recorded ones", _words(class_id, score, box), _ACTION)
        for box, score, class_id in zip(over.boxes_xyxy_px, over.scores, over.class_ids, strict=True)
    ]


def _check_verdict(picture: GoldenPicture, found: Detections, rule: VerdictRule, tolerance: Tolerance) -> list[Problem]:
    """The verdict must stand, unless a recorded score lies so close to its threshold that either verdict is right."""
    recorded = Detections.from_records(picture.detections)
    verdict, _ = judge(found, rule)
    thresholds = np.array(rule.thresholds, dtype=np.float32)[recorded.class_ids]
    close = bool((np.abs(recorded.scores - thresholds) <= tolerance.score).any())
    if verdict == picture.verdict or close:
        return []
    return [Problem(picture.file, f"verdict {picture.verdict}", verdict, _ACTION)]


def _words(class_id: int, score: float, box: np.ndarray) -> str:
    return f"a box of class {class_id} with score {score:.4f} at {[round(float(side), 1) for side in box]}"
