from __future__ import annotations

import numpy as np
import pytest

from data_contracts.bundle import VerdictRule
from data_contracts.detections import Detections, Verdict
from serving.verdict import judge, score_floor

RULE = VerdictRule(kind="any_box_over_threshold", thresholds=(0.5, 0.3), chosen_on="a test")


def found(*scores_and_classes: tuple[float, int]) -> Detections:
    count = len(scores_and_classes)
    scores = np.array([score for score, _ in scores_and_classes], np.float32)
    ids = np.array([class_id for _, class_id in scores_and_classes], np.int64)
    return Detections(np.tile(np.array([0, 0, 9, 9], np.float32), (count, 1)), scores, ids)


CASES = {
    "nothing": ((), Verdict.OK, []),
    "over its class's threshold": (((0.6, 0), (0.31, 1)), Verdict.NG, [0, 1]),
    "over another class's threshold only": (((0.4, 0),), Verdict.OK, []),
    "equal reaches it": (((0.3, 1),), Verdict.NG, [1]),
    "one of two": (((0.49, 0), (0.45, 1)), Verdict.NG, [1]),
}


@pytest.mark.parametrize(("boxes", "verdict", "classes"), CASES.values(), ids=CASES)
def test_verdict(boxes, verdict, classes):
    got, over = judge(found(*boxes), RULE)
    assert (got, over.class_ids.tolist()) == (verdict, classes)


def test_the_floor_is_the_lowest_threshold():
    assert score_floor(RULE) == 0.3
