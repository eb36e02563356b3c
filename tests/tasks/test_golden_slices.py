from __future__ import annotations

import numpy as np
import pytest

from tasks.evaluation.picture_scores import PictureScores, score_pictures
from tasks.gating.golden_slices import golden_slices
from training_fakes import boxes, truth


def scores(found: list[bool]) -> PictureScores:
    """Two pictures with true boxes of the classes 0, 1, 0 and 1, 1."""
    rows = [(0, 0, 9, 9), (10, 0, 19, 9), (20, 0, 29, 9)]
    true = [
        truth(*((*box, id_) for box, id_ in zip(rows, (0, 1, 0), strict=True))),
        truth((*rows[0], 1), (*rows[1], 1)),
    ]
    return score_pictures(true, [boxes(), boxes()], 3, 100, np.array(found))


@pytest.mark.parametrize(
    ("now", "before", "scratch", "pit"),
    [
        pytest.param([1, 1, 1, 1, 1], [1, 1, 1, 1, 1], (2, 2, 0), (3, 3, 0), id="everything by both"),
        pytest.param([0, 0, 0, 0, 0], [1, 1, 1, 1, 1], (2, 0, 0), (3, 0, 0), id="everything forgotten"),
        pytest.param([1, 0, 0, 1, 1], [0, 1, 1, 1, 0], (1, 0, 1), (2, 1, 1), id="some lost, some new"),
        pytest.param([1, 1, 1, 1, 1], [0, 0, 0, 0, 0], (0, 0, 2), (0, 0, 3), id="a champion that finds nothing"),
    ],
)
def test_slices_follow_each_true_box(now: list[int], before: list[int], scratch, pit):
    slices = golden_slices(scores(list(map(bool, now))), scores(list(map(bool, before))), ("scratch", "pit", "stain"))
    assert [(one.champion_found, one.still_found, one.newly_found) for one in slices] == [scratch, pit, (0, 0, 0)]
    assert [(one.name, one.instances) for one in slices] == [("scratch", 2), ("pit", 3), ("stain", 0)]
