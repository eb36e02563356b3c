"""Made-up detections of a split, good or bad in a known way: for tests of average precision, bootstrap and gates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from data_contracts.base import sha256_of
from data_contracts.bundle import VerdictRule
from data_contracts.dataset import Split
from data_contracts.detections import Detections
from tasks.evaluate import Measured, class_results, countable, measure
from tasks.evaluation.evaluation_intervals import class_intervals, split_intervals
from tasks.evaluation.evaluation_result import EvaluateConfig, EvaluationResult
from tasks.evaluation.operating_point import picture_counts
from tasks.evaluation.picture_scores import score_pictures
from tasks.ground_truth import GroundTruth
from training_fakes import boxes, truth

NAMES = ("scratch", "pit", "stain", "dent")
THRESHOLD = 0.4
SETTINGS = EvaluateConfig(score_floor=0.001, max_detections=100, match_iou=0.5, rounds=400, confidence=0.95, seed=0)
Change = Callable[[Detections, np.random.Generator], Detections]


def made_truth(pictures: int, classes: int, seed: int = 0) -> list[GroundTruth]:
    """Up to four true boxes in each picture, every class in some, every seventh picture without defects."""
    chance = np.random.default_rng(seed)
    made = []
    for row in range(pictures):
        count = 0 if row % 7 == 6 else chance.integers(1, 5)
        corners = chance.uniform(0, 60, (count, 2))
        sides = chance.uniform(12, 40, (count, 2))
        ids = (row + np.arange(count)) % classes
        made.append(truth(*np.column_stack([corners, corners + sides, ids]).tolist(), picture=f"{row:03d}.png"))
    return made


def made_detections(
    true: Sequence[GroundTruth], classes: int, seed: int, miss: float = 0.15, jitter_px: float = 2.0
) -> list[Detections]:
    """Most true boxes with a high score and a little off, and false ones, most with a low score; no two alike."""
    chance = np.random.default_rng(seed)
    made = []
    for one in true:
        kept = chance.random(len(one.class_ids)) >= miss
        near = one.boxes_xyxy_px[kept] + chance.normal(0, jitter_px, (int(kept.sum()), 4)).clip(-5, 5)
        rows = [(*box, chance.beta(5, 2), id_) for box, id_ in zip(near, one.class_ids[kept], strict=True)]
        for _ in range(chance.poisson(1.5)):
            left, top = chance.uniform(0, 70, 2)
            rows.append((left, top, left + 25, top + 25, 0.002 + 0.9 * chance.beta(1, 6), chance.integers(classes)))
        rows.sort(key=lambda row: -row[4])
        made.append(boxes(*rows))
    return made


def made_pictures(seed: int, pictures: int, classes: int) -> tuple[list[GroundTruth], list[Detections]]:
    """A split and what a middling detector finds in it; boxes are far enough off to differ between overlaps."""
    true = made_truth(pictures, classes, seed)
    return true, made_detections(true, classes, seed + 1000, miss=0.2, jitter_px=4.0)


def measured(
    true: Sequence[GroundTruth],
    found: Sequence[Detections],
    digest: str,
    names: Sequence[str] = NAMES,
    known: Sequence[str] = NAMES,
) -> Measured:
    """What `evaluate` would say about a bundle with the classes `known` that found this."""
    rule = VerdictRule(kind="any_box_over_threshold", thresholds=(THRESHOLD,) * len(known), chosen_on="a test")
    counts, precisions = measure(true, found, rule, known, names, SETTINGS)
    scores = score_pictures(true, countable(found, known, names, 0.001), len(names), 100, counts.hits)
    map50, map50_95 = precisions.means
    thresholds = dict.fromkeys(known, THRESHOLD)
    result = EvaluationResult(
        digest=digest * 64,
        split=Split.TEST,
        pictures_sha256=sha256_of(b"made"),
        settings=SETTINGS,
        engine="cpu",
        precision="fp32",
        map50=map50,
        map50_95=map50_95,
        classes=class_results(names, counts, precisions, thresholds, class_intervals(counts, scores, SETTINGS)),
        intervals=split_intervals(counts, scores, SETTINGS),
        **picture_counts(counts.outcomes),  # type: ignore[arg-type]
    )
    return Measured(result, counts.outcomes, scores, tuple(found))
