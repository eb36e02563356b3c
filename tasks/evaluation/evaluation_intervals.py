"""The intervals of a measurement, all from the same drawings of its pictures."""

from __future__ import annotations

import numpy as np

from data_contracts.detections import Verdict
from tasks.evaluation.bootstrap import (
    Weights,
    class_precisions,
    draw_weights,
    drawn_ratio,
    interval,
    mean_of_known,
    with_measured,
)
from tasks.evaluation.evaluation_result import ClassIntervals, EvaluateConfig, Interval, SplitIntervals
from tasks.evaluation.operating_point import OperatingPoint
from tasks.evaluation.picture_scores import OVERLAPS, PictureScores


def _drawings(scores: PictureScores, config: EvaluateConfig) -> Weights:
    return with_measured(draw_weights(len(scores.names), config.rounds, config.seed))


def class_intervals(
    counts: OperatingPoint, scores: PictureScores, config: EvaluateConfig
) -> tuple[ClassIntervals, ...]:
    """Per class: AP50, escape rate, false alarms per picture, and pictures without defects with such a box."""
    weights = _drawings(scores, config)
    precisions = class_precisions(scores, weights)
    missed = counts.instances_of - counts.found_of
    everywhere, good = np.ones(len(scores.names)), counts.good

    def ratio_interval(part: object, whole: object) -> Interval | None:
        return interval(drawn_ratio(np.asarray(part), np.asarray(whole), weights), config.confidence)

    return tuple(
        ClassIntervals(
            ap50=interval(precisions[:, index], config.confidence),
            escape_rate=ratio_interval(missed[:, index], counts.instances_of[:, index]),
            false_alarms_per_picture=ratio_interval(counts.false_alarms_of[:, index], everywhere),
            overkill_rate=ratio_interval((counts.false_alarms_of[:, index] > 0) & good, good),
        )
        for index in range(scores.instances.shape[1])
    )


def split_intervals(counts: OperatingPoint, scores: PictureScores, config: EvaluateConfig) -> SplitIntervals:
    """Over the split: both means, overkill, and false alarms per picture."""
    weights, good = _drawings(scores, config), counts.good
    alarms = np.array([outcome.false_alarms for outcome in counts.outcomes])
    judged_ng = np.array([outcome.verdict is Verdict.NG for outcome in counts.outcomes], np.bool_)
    every_overlap = tuple(range(len(OVERLAPS)))
    drawn = {
        "map50": mean_of_known(class_precisions(scores, weights)),
        "map50_95": mean_of_known(class_precisions(scores, weights, every_overlap)),
        "overkill_rate": drawn_ratio(judged_ng & good, good, weights),
        "false_alarms_per_picture": drawn_ratio(alarms, np.ones(len(alarms)), weights),
    }
    return SplitIntervals(**{name: interval(values, config.confidence) for name, values in drawn.items()})
