"""Precision over recall, and F1 over the threshold, of one class: from the per-picture results of a measurement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.evaluation.bootstrap import RECALLS
from tasks.evaluation.picture_scores import PictureScores

THRESHOLDS = np.linspace(0.0, 1.0, 101)
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassCurves:
    """float64 (101,): the highest precision at RECALLS or beyond, whose mean is AP50, and F1 at THRESHOLDS."""

    precision: Numbers
    f1: Numbers


def class_curves(scores: PictureScores, class_id: int) -> ClassCurves | None:
    """None where the class has no true box: there is no recall then."""
    instances = int(scores.instances[:, class_id].sum())
    if not instances:
        return None
    own = scores.class_id == class_id
    true = np.cumsum(scores.hits[own] & 1, dtype=np.float64)
    boxes = np.arange(1, len(true) + 1)
    reached = np.searchsorted(true / instances, RECALLS)
    best_from_here = np.append(np.maximum.accumulate((true / boxes)[::-1])[::-1], 0.0)
    # How many boxes reach each threshold; scores fall.
    count = np.searchsorted(-scores.score[own].astype(np.float64), -THRESHOLDS, side="right")
    f1 = 2 * np.append(0.0, true)[count] / (count + instances)
    return ClassCurves(np.asarray(best_from_here[reached]), np.asarray(f1))
