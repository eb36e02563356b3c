"""Judge an engine by its answers to the probe set: verdict flips and boxes, against those of FP32 ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from data_contracts.bundle import BundleManifest, Precision, ProbeLimit, Tolerance, VerdictRule
from data_contracts.detections import Detections
from data_contracts.errors import BundleError, Problem
from data_contracts.probe import ProbeSet
from serving.golden import compare_boxes
from serving.verdict import judge


@dataclass(frozen=True)
class Judgement:
    """What the probe set says about an engine; `words` holds every number that decided."""

    passed: bool
    words: str


@dataclass(frozen=True)
class ProbeRule:
    """By what the answers of one precision are judged."""

    verdict: VerdictRule
    tolerance: Tolerance
    limit: ProbeLimit


def rule_for(manifest: BundleManifest, precision: Precision) -> ProbeRule:
    """The bundle's rule for a precision. Raises BundleError where it was sealed without one."""
    tolerance, limit = manifest.tolerances.get(precision), manifest.probe_limits.get(precision)
    if tolerance is None or limit is None:
        have = ", ".join(manifest.tolerances.keys() & manifest.probe_limits.keys()) or "none"
        action = "Seal with them (params.yaml: seal.tolerances and seal.probe_limits)."
        raise BundleError(Problem(f"precision {precision}", "a tolerance and a probe limit", have, action))
    return ProbeRule(manifest.verdict, tolerance, limit)


def judge_answers(probe: ProbeSet, found: Sequence[Detections], rule: ProbeRule) -> Judgement:
    """Compare the answers, one per picture in order, with the recorded ones.

    A flip counts however close its score is to the threshold. A box counts as lost when it is missing, moved or scored
    beyond the tolerance, or was never recorded; so the share of boxes can fall below 0.

    Worked example: of 200 pictures with a flip share of 0.005, 200 x 0.005 = 1 verdict may flip.
    """
    flips = lost = 0
    for picture, detections in zip(probe.pictures, found, strict=True):
        flips += judge(detections, rule.verdict)[0] != picture.verdict
        lost += len(compare_boxes(picture, detections, rule.tolerance, probe.score_floor))
    count, boxes = len(probe.pictures), sum(len(picture.detections) for picture in probe.pictures)
    # The small addition keeps a product such as 100 x 0.29 = 28.999999999999996 at its true 29.
    may_flip = math.floor(count * rule.limit.max_flip_share + 1e-9)
    may_lose = math.floor(boxes * (1 - rule.limit.min_box_share) + 1e-9)
    words = f"{flips} of {count} verdicts flipped, allowed {may_flip}; {lost} of {boxes} boxes differ by more than "
    words += f"{rule.tolerance.box_px:g} px or {rule.tolerance.score:g} in score, allowed {may_lose}"
    return Judgement(flips <= may_flip and lost <= may_lose, words)
