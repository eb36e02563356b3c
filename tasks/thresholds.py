"""Choose the score from which on a box counts, per class, on the validation split.

Highest F1, and lower where that misses more defects than the job allows: a missed defect is worse than a false alarm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
from prefect import task
from pydantic import Field, model_validator

from data_contracts.base import Contract, Fraction
from data_contracts.bundle import VerdictRule
from data_contracts.dataset import Split
from data_contracts.detections import Detections
from tasks.evaluation.matching import match_boxes
from tasks.export import ExportedModel
from tasks.ground_truth import GroundTruth, read_ground_truth
from tasks.pictures import detect_files, draft_detector


class ThresholdConfig(Contract):
    """How thresholds are chosen."""

    iou: Fraction = Field(description="Overlap from which on a found box counts as the true one.")
    lowest: Fraction = Field(gt=0, description="No threshold is below this score.")
    highest: Fraction = Field(description="No threshold is above this score.")
    max_escape_rate: Fraction = Field(description="Most missed true boxes of a class on the validation split, share.")
    fallback: Fraction = Field(description="Threshold of a class that has no true box here, or of which none is found.")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if not self.lowest <= self.fallback <= self.highest:
            raise ValueError("expected lowest <= fallback <= highest")
        return self


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Boxes found of one class, over all pictures: scores (n,), whether each is a true one (n,); true boxes in all."""

    scores: npt.NDArray[np.float32]
    is_true: npt.NDArray[np.bool_]
    instances: int


def best_f1_threshold(found: ClassScores, config: ThresholdConfig) -> float | None:
    """The threshold with the highest F1, or None where no box is true.

    It lies halfway between the last score that is in and the first that is out, so that a small change of scores
    changes nothing. Of equally good ones the lowest is taken: a missed defect is worse than a false alarm.

    Worked example: scores 0.9 (true), 0.6 (true), 0.4 (false), three true boxes: F1 is 2/(1+3), 4/(2+3), 4/(3+3), so
    the first two are in and the threshold is 0.5.
    """
    if not found.is_true.any():
        return None
    order = np.argsort(-found.scores, kind="stable")
    scores = found.scores[order].astype(np.float64)
    hits = np.cumsum(found.is_true[order])
    f1 = 2 * hits / (np.arange(1, len(scores) + 1) + found.instances)
    last_of_score = np.append(scores[:-1] > scores[1:], True)
    f1[~last_of_score] = -1.0
    return _below(scores, int(np.flatnonzero(f1 == f1.max())[-1]), config)


def _below(scores: npt.NDArray[np.float64], last: int, config: ThresholdConfig) -> float:
    """Halfway between score `last`, which is in, and the next; `scores` are best first."""
    out = scores[last + 1] if last + 1 < len(scores) else config.lowest
    return float(np.clip((scores[last] + out) / 2, config.lowest, config.highest))


def escape_threshold(found: ClassScores, config: ThresholdConfig) -> float | None:
    """The highest threshold that misses no more true boxes than `max_escape_rate`; None where none does.

    Worked example: scores 0.9 (true), 0.6 (false), 0.5 (true), 0.4 (true), four true boxes, a rate of 0.5: two must be
    found, so 0.5 is in and 0.4 out: the threshold is 0.45.
    """
    needed = math.ceil(found.instances * (1 - config.max_escape_rate) - 1e-9)
    order = np.argsort(-found.scores, kind="stable")
    scores = found.scores[order].astype(np.float64)
    enough = np.flatnonzero(np.cumsum(found.is_true[order]) >= needed)
    if not needed or not len(enough):
        return None
    return _below(scores, int(np.flatnonzero(scores == scores[enough[0]])[-1]), config)


def class_threshold(found: ClassScores, config: ThresholdConfig) -> float | None:
    """The threshold of highest F1, or that of the escape limit where it is lower; None where no box is true."""
    best, limit = best_f1_threshold(found, config), escape_threshold(found, config)
    return best if best is None or limit is None else min(best, limit)


def escapes_at(found: ClassScores, threshold: float) -> float:
    """Share of the true boxes that no box from `threshold` on finds; 0 without true boxes."""
    hits = int((found.is_true & (found.scores >= threshold)).sum())
    return 1 - hits / found.instances if found.instances else 0.0


def collect_scores(
    found: Sequence[Detections], truth: Sequence[GroundTruth], class_count: int, iou: float
) -> list[ClassScores]:
    """The found boxes of all pictures by class, each judged by `match_boxes`."""
    matched = [
        match_boxes(boxes, true.boxes_xyxy_px, true.class_ids, iou) >= 0
        for boxes, true in zip(found, truth, strict=True)
    ]
    scores = np.concatenate([np.zeros(0, np.float32), *(boxes.scores for boxes in found)])
    ids = np.concatenate([np.zeros(0, np.int64), *(boxes.class_ids for boxes in found)])
    is_true = np.concatenate([np.zeros(0, np.bool_), *matched])
    true_ids = np.concatenate([np.zeros(0, np.int64), *(true.class_ids for true in truth)])
    return [
        ClassScores(scores[ids == index], is_true[ids == index], int((true_ids == index).sum()))
        for index in range(class_count)
    ]


def verdict_rule(by_class: Sequence[ClassScores], class_names: Sequence[str], config: ThresholdConfig) -> VerdictRule:
    """The rule with a threshold per class, saying how it came about."""
    best = [class_threshold(found, config) for found in by_class]
    thresholds = tuple(config.fallback if threshold is None else round(threshold, 4) for threshold in best)
    words = [
        f"validation split, highest F1 at IoU {config.iou:g}, lower where more than {config.max_escape_rate:g} escapes",
        f"between {config.lowest:g} and {config.highest:g}",
    ]
    if without := [name for name, threshold in zip(class_names, best, strict=True) if threshold is None]:
        words.append(f"{config.fallback:g} where no true box was found: {', '.join(without)}")
    if over := [
        name
        for name, found, threshold in zip(class_names, by_class, thresholds, strict=True)
        if escapes_at(found, threshold) > config.max_escape_rate
    ]:
        words.append(f"more escapes at any threshold: {', '.join(over)}")
    return VerdictRule(kind="any_box_over_threshold", thresholds=thresholds, chosen_on="; ".join(words))


@task
def choose_thresholds(exported: ExportedModel, working_copy: Path, config: ThresholdConfig) -> VerdictRule:
    """Choose thresholds for an exported model on the validation split."""
    truth = read_ground_truth(working_copy, Split.VAL)
    detector = draft_detector(exported.model, exported.spec)
    found = detect_files(detector, [true.picture for true in truth], config.lowest)
    names = exported.spec.class_names
    return verdict_rule(collect_scores(found, truth, len(names), config.iou), names, config)
