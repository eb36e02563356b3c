"""Is the quantised model as good as FP32? Both are measured on the validation split, through `serving.detector`.

Average precision alone would miss a shift of all scores, for it only sees their order; so the operating point counts
too, as do verdicts and boxes by the rule that a host will judge the engine by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from data_contracts.bundle import GoldenPicture, Int8ClassResult, VerdictRule
from data_contracts.detections import Detections
from serving.detector import Detector
from serving.golden import compare_boxes
from serving.probe import ProbeRule
from serving.verdict import judge, score_floor
from tasks.evaluate import measure
from tasks.evaluation.average_precision import AveragePrecisions
from tasks.evaluation.evaluation_result import EvaluateConfig
from tasks.evaluation.operating_point import OperatingPoint
from tasks.ground_truth import GroundTruth
from tasks.pictures import detect_files
from tasks.quantising.quantise_config import QuantiseConfig

SPREAD_KEPT = 0.5
"""Share of the FP32 spread of scores that INT8 must keep: scales that fit nothing leave a few equal scores, or none."""


@dataclass(frozen=True, eq=False)
class Draft:
    """A model that is not sealed, on the validation split. `found`: boxes per picture, far below the thresholds too."""

    found: tuple[Detections, ...]
    counts: OperatingPoint
    precisions: AveragePrecisions

    @property
    def spread(self) -> tuple[float, float]:
        """Lowest and highest of the pictures' best scores."""
        best = [float(boxes.scores.max(initial=0.0)) for boxes in self.found]
        return min(best), max(best)


def measure_draft(detector: Detector, truth: Sequence[GroundTruth], rule: VerdictRule, config: EvaluateConfig) -> Draft:
    """Run a detector over the pictures. Raises EngineError where its answers are impossible."""
    names = detector.spec.class_names
    found = detect_files(detector, [one.picture for one in truth], min(config.score_floor, *rule.thresholds))
    return Draft(tuple(found), *measure(truth, found, rule, names, names, config))


def class_results(fp32: Draft, int8: Draft, names: Sequence[str]) -> tuple[Int8ClassResult, ...]:
    """Both models, class by class."""
    return tuple(
        Int8ClassResult(
            name=name,
            instances=int(fp32.counts.instances[index]),
            ap50=(_number(fp32.precisions.at_50[index]), _number(int8.precisions.at_50[index])),
            ap50_95=(_number(fp32.precisions.at_50_95[index]), _number(int8.precisions.at_50_95[index])),
            found=(int(fp32.counts.found[index]), int(int8.counts.found[index])),
        )
        for index, name in enumerate(names)
    )


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def objections(
    fp32: Draft, int8: Draft, classes: Sequence[Int8ClassResult], rule: ProbeRule, config: QuantiseConfig
) -> tuple[str, ...]:
    """All that speaks against the quantised model, in words; nothing when it may ship."""
    return (*_spread(fp32, int8), *_losses(fp32, int8, classes, config), *_flips_and_boxes(fp32, int8, rule))


def _spread(fp32: Draft, int8: Draft) -> Iterator[str]:
    (low, high), (other_low, other_high) = fp32.spread, int8.spread
    if not other_high - other_low >= SPREAD_KEPT * (high - low):
        scores = f"from {other_low:.3f} to {other_high:.3f}, in FP32 from {low:.3f} to {high:.3f}"
        yield f"the best scores of the pictures shrink: {scores}"


def _losses(fp32: Draft, int8: Draft, classes: Sequence[Int8ClassResult], config: QuantiseConfig) -> Iterator[str]:
    for one in classes:
        if not one.instances:
            continue
        for name, (before, after) in (("AP50", one.ap50), ("AP50-95", one.ap50_95)):
            yield from _loss(f"{one.name}: {name}", before, after, config.max_loss)
        before, after = one.found
        # A single box is within chance, and more than the limit where a class has few.
        if before - after > max(1, one.instances * config.max_loss / 100):
            yield f"{one.name}: finds {after} of {one.instances} true boxes, FP32 {before}"
    pairs = zip(("mAP50", "mAP50-95"), fp32.precisions.means, int8.precisions.means, strict=True)
    for name, before_mean, after_mean in pairs:
        yield from _loss(name, before_mean, after_mean, config.max_mean_loss)


def _loss(name: str, before: float | None, after: float | None, limit: float) -> Iterator[str]:
    """More than `limit` points, or no number."""
    if before is None or after is None:
        yield f"{name} cannot be measured"
    elif not 100 * (before - after) <= limit + 1e-9:
        yield f"{name} {before:.3f} becomes {after:.3f}, more than {limit:g} points lower"


def _flips_and_boxes(fp32: Draft, int8: Draft, rule: ProbeRule) -> Iterator[str]:
    """As `serving.probe` counts them, over the whole validation split."""
    floor = score_floor(rule.verdict)
    flips = lost = boxes = 0
    for ours, theirs in zip(fp32.found, int8.found, strict=True):
        recorded = _recorded(ours.where(ours.scores >= np.float32(floor)), rule.verdict)
        flips += judge(theirs, rule.verdict)[0] != recorded.verdict
        lost += len(compare_boxes(recorded, theirs.where(theirs.scores >= np.float32(floor)), rule.tolerance, floor))
        boxes += len(recorded.detections)
    may_flip = math.floor(len(fp32.found) * rule.limit.max_flip_share + 1e-9)
    may_lose = math.floor(boxes * (1 - rule.limit.min_box_share) + 1e-9)
    if flips > may_flip:
        yield f"{flips} of {len(fp32.found)} verdicts flip, allowed are {may_flip}"
    if lost > may_lose:
        yield f"{lost} of {boxes} boxes differ beyond the tolerance, allowed are {may_lose}"


def _recorded(boxes: Detections, rule: VerdictRule) -> GoldenPicture:
    names = tuple(str(index) for index in range(len(rule.thresholds)))
    return GoldenPicture(file="validation", verdict=judge(boxes, rule)[0], detections=boxes.records(names))
