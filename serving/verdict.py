"""From boxes to the verdict on the part."""

from __future__ import annotations

import numpy as np

from data_contracts.bundle import VerdictRule
from data_contracts.detections import Detections, Verdict


def judge(detections: Detections, rule: VerdictRule) -> tuple[Verdict, Detections]:
    """The verdict and the boxes that it rests on: those that reach the threshold of their class."""
    over = detections.over(np.array(rule.thresholds, dtype=np.float32))
    return (Verdict.NG if len(over) else Verdict.OK), over


def score_floor(rule: VerdictRule) -> float:
    """The lowest score that can matter to the verdict."""
    return min(rule.thresholds)
