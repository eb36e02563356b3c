"""Does an answer equal a recorded one, within the bundle's tolerance?"""

from __future__ import annotations

import numpy as np

from data_contracts.bundle import GoldenPicture, Tolerance, VerdictRule
from data_contracts.detections import Detections
from data_contracts.errors import Problem
from serving.verdict import judge

_ACTION = "Do not serve this bundle on this engine."


def compare(
    picture: GoldenPicture, found: Detections, rule: VerdictRule, tolerance: Tolerance, score_floor: float
) -> list[Problem]:
    """All differences beyond the tolerance. Boxes that close to `score_floor` may come or go.

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
    problems += _surplus(picture, found.where(free), tolerance, score_floor)
    return problems + _check_verdict(picture, recorded, found, rule, tolerance)


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


def _check_verdict(
    picture: GoldenPicture, recorded: Detections, found: Detections, rule: VerdictRule, tolerance: Tolerance
) -> list[Problem]:
    """The verdict must stand, unless a recorded score lies so close to its threshold that either verdict is right."""
    verdict, _ = judge(found, rule)
    thresholds = np.array(rule.thresholds, dtype=np.float32)[recorded.class_ids]
    close = bool((np.abs(recorded.scores - thresholds) <= tolerance.score).any())
    if verdict == picture.verdict or close:
        return []
    return [Problem(picture.file, f"verdict {picture.verdict}", verdict, _ACTION)]


def _words(class_id: int, score: float, box: np.ndarray) -> str:
    return f"a box of class {class_id} with score {score:.4f} at {[round(float(side), 1) for side in box]}"
