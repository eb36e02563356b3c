"""Candidate against champion on made-up pictures: what is bad is rejected with its reason, chance alone is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from data_contracts.detections import Detections
from made_results import NAMES, made_detections, made_truth, measured
from tasks.evaluate import Measured
from tasks.evaluation.comparison import compare
from tasks.gates import Evidence, GateReport, decide
from tasks.ground_truth import GroundTruth
from training_fakes import gate_policy, parity, speed

TRUTH = made_truth(120, len(NAMES))
FOUND = made_detections(TRUTH, len(NAMES), seed=1)
CHAMPION = measured(TRUTH, FOUND, "d")
POLICY = gate_policy(
    min_map50=0.5, max_escape_rate=0.5, max_overkill_rate=0.5, max_false_alarms_per_picture=2.0, margin=0.04,
    max_forgotten=0.35,
)  # fmt: skip


def judged(candidate: Measured, champion: Measured = CHAMPION, **policy: Any) -> GateReport:
    rules = POLICY.model_copy(update=policy)
    ours, theirs = (candidate.result, candidate.scores), (champion.result, champion.scores)
    evidence = Evidence(
        candidate=candidate.result,
        parity=parity(),
        champion=champion.result,
        comparison=compare(ours, theirs, rules),
        speed=speed(),
    )
    return decide(evidence, rules)


def refused(report: GateReport) -> set[str]:
    return {check.name for check in report.refusals}


def changed(change: Any) -> list[Detections]:
    """The champion's own boxes with their classes or scores replaced."""
    chance = np.random.default_rng(0)
    return [Detections(boxes.boxes_xyxy_px, *change(boxes, chance)) for boxes in FOUND]


def shuffled_labels() -> list[Detections]:
    return changed(lambda boxes, chance: (boxes.scores, chance.integers(len(NAMES), size=len(boxes))))


def without(class_ids: Sequence[int]) -> list[Detections]:
    return [boxes.where(~np.isin(boxes.class_ids, class_ids)) for boxes in FOUND]


def test_scores_that_are_no_numbers_find_nothing_and_are_refused():
    broken = changed(lambda boxes, _: (boxes.scores * np.nan, boxes.class_ids))
    report = judged(measured(TRUTH, broken, "c"))
    assert "map50" in refused(report)
    assert "map50 against the champion" in refused(report)


@pytest.mark.parametrize(
    ("found", "names", "spared"),
    [
        pytest.param(
            shuffled_labels(), {"map50", "map50 against the champion", "pit: escape rate", "pit: forgotten"}, set(),
            id="shuffled labels",
        ),
        pytest.param(
            without([1]), {"pit: escape rate", "pit: forgotten", "map50 against the champion"},
            {"scratch: forgotten", "stain: forgotten", "dent: forgotten"}, id="one class removed",
        ),
        pytest.param(
            without([0, 1]), {"scratch: forgotten", "pit: forgotten", "scratch: escape rate"},
            {"stain: forgotten", "dent: forgotten"}, id="half of the classes forgotten",
        ),
    ],
)  # fmt: skip
def test_bad_candidates_are_rejected_with_the_right_reasons(found: list[Detections], names: set[str], spared: set[str]):
    report = judged(measured(TRUTH, found, "c"))
    assert not report.accepted
    assert names <= refused(report)
    assert not spared & refused(report)


def test_a_class_that_the_bundle_no_longer_knows_is_named():
    known = tuple(name for name in NAMES if name != "dent")
    ids = np.array([0, 1, 2, -1])
    kept = [
        Detections(boxes.boxes_xyxy_px, boxes.scores, ids[boxes.class_ids]).where(boxes.class_ids != 3)
        for boxes in FOUND
    ]
    report = judged(measured(TRUTH, kept, "c", known=known))
    assert {"dent: known", "class list", "dent: forgotten"} <= refused(report)
    (words,) = (check.words for check in report.refusals if check.name == "class list")
    assert "lost dent" in words


def test_forgetting_is_seen_although_the_mean_rises():
    """The champion misses much of three classes; the candidate finds them, and half of the fourth no longer."""
    weak = measured(TRUTH, without_every_other((0, 1, 2), offset=0), "d")
    strong = measured(TRUTH, without_every_other((3,), offset=1), "c")
    report = judged(strong, weak)
    assert (strong.result.map50 or 0) > (weak.result.map50 or 0) + 0.05
    assert refused(report) - {"dent: escape rate"} == {"dent: forgotten"}
    assert report.promotion.holds
    assert not report.promotable


def without_every_other(class_ids: tuple[int, ...], offset: int) -> list[Detections]:
    """The boxes of these classes are kept on every other picture only."""
    return [
        boxes.where(~np.isin(boxes.class_ids, class_ids)) if row // 4 % 2 == offset else boxes
        for row, boxes in enumerate(FOUND)
    ]


def test_the_champion_itself_is_registered_and_not_promoted():
    report = judged(measured(TRUTH, FOUND, "c"))
    assert report.accepted, refused(report)
    assert not report.promotable
    assert report.comparison is not None
    assert (report.comparison.difference, report.comparison.promotion_lower) == (0.0, 0.0)


def test_what_is_slightly_better_is_promoted():
    """Of what the champion finds nothing is lost, and what it misses on every third picture is found."""
    starts = np.cumsum([0, *(len(true.class_ids) for true in TRUTH)])
    better = [
        with_boxes(FOUND[row], true, ~CHAMPION.scores.true_found[starts[row] : starts[row + 1]] & (row % 3 == 0))
        for row, true in enumerate(TRUTH)
    ]
    report = judged(measured(TRUTH, better, "c"))
    assert report.promotable, [check.words for check in (*report.refusals, report.promotion)]
    assert report.rule == "superiority"


def with_boxes(boxes: Detections, true: GroundTruth, added: npt.NDArray[np.bool_]) -> Detections:
    """The boxes and, with a score over all of them, those true ones."""
    corners, scores = true.boxes_xyxy_px[added], np.full(int(added.sum()), 0.95, np.float32)
    return Detections(
        np.concatenate([corners, boxes.boxes_xyxy_px]),
        np.concatenate([scores, boxes.scores]),
        np.concatenate([true.class_ids[added], boxes.class_ids]),
    )


def test_the_pairing_makes_the_difference_surer_than_either_number():
    candidate = measured(TRUTH, without([]), "c")
    fewer = measured(TRUTH, [boxes.where(boxes.scores > 0.05) for boxes in FOUND], "d")
    comparison = compare((candidate.result, candidate.scores), (fewer.result, fewer.scores), POLICY)
    own = candidate.result.intervals
    assert comparison is not None
    assert own is not None
    assert own.map50 is not None
    assert comparison.difference is not None
    assert comparison.promotion_lower is not None
    assert comparison.difference - comparison.promotion_lower < (own.map50.high - own.map50.low) / 4


def test_without_the_same_pictures_there_is_no_comparison():
    other = replace(CHAMPION, result=CHAMPION.result.model_copy(update={"pictures_sha256": "e" * 64}))
    renamed = replace(CHAMPION, scores=replace(CHAMPION.scores, names=CHAMPION.scores.names[::-1]))
    candidate = measured(TRUTH, FOUND, "c")
    assert "same pictures" in refused(judged(candidate, other))
    assert "map50 against the champion" in refused(judged(candidate, renamed))


def test_map50_95_is_compared_where_the_policy_says_so():
    moved = [Detections(boxes.boxes_xyxy_px + np.float32(1.5), boxes.scores, boxes.class_ids) for boxes in FOUND]
    candidate = measured(TRUTH, moved, "c")
    by_50, by_95 = (judged(candidate, compared=compared).comparison for compared in ("map50", "map50_95"))
    assert by_50 is not None
    assert by_95 is not None
    assert by_95.difference == pytest.approx(
        (candidate.result.map50_95 or 0) - (CHAMPION.result.map50_95 or 0), abs=1e-9
    )
    assert by_50.difference == pytest.approx((candidate.result.map50 or 0) - (CHAMPION.result.map50 or 0), abs=1e-9)
    assert by_95.difference != by_50.difference
