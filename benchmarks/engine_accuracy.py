"""What another engine or precision costs on a trained model: average precision, verdicts, boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.engine_models import job
from benchmarks.engine_speed import REFERENCE, Kind, Way, open_way
from data_contracts.bundle import VerdictRule
from data_contracts.dataset import Split
from data_contracts.detections import Detections
from data_contracts.errors import EngineError
from serving.bundle import open_bundle
from serving.detector import Detector
from serving.verdict import judge, score_floor


@dataclass(frozen=True)
class Accuracy:
    """One engine on the test split, against FP32 ONNX Runtime. Boxes are those over the thresholds of the latter."""

    map50_95: float | None
    loss_points: float | None
    flips: int
    pictures: int
    boxes: int
    box_px: float | None
    score: float | None


def measure_accuracy(
    kinds: Sequence[Kind], bundle_path: Path, files: Path, working_copy: Path, names: Sequence[str]
) -> dict[Kind, Accuracy]:
    """All engines over the test split; FP32 ONNX Runtime must be among them, and is measured first."""
    from tasks.ground_truth import read_ground_truth
    from tasks.pictures import detect_files

    bundle = open_bundle(bundle_path)
    spec, rule = bundle.manifest.model, bundle.manifest.verdict
    settings = job().evaluate
    truth = read_ground_truth(working_copy, Split.TEST)
    found: dict[Kind, list[Detections]] = {}
    for kind in sorted(kinds, key=lambda kind: kind != REFERENCE):
        try:
            detector = Detector(spec, open_way(Way(kind, 1, 1), files, spec))
        except EngineError:
            continue  # the table of speeds says why
        found[kind] = detect_files(
            detector, [one.picture for one in truth], min(settings.score_floor, score_floor(rule))
        )

    def precision_of(answers: Sequence[Detections]) -> float | None:
        from tasks.evaluate import measure

        return measure(truth, answers, rule, spec.class_names, names, settings)[1].means[1]

    maps = {kind: precision_of(answers) for kind, answers in found.items()}
    return {kind: compare(found[REFERENCE], found[kind], rule, maps[REFERENCE], maps[kind]) for kind in found}


def compare(
    reference: Sequence[Detections],
    found: Sequence[Detections],
    rule: VerdictRule,
    reference_map: float | None,
    found_map: float | None,
) -> Accuracy:
    """Loss of average precision in points, flipped verdicts, and how far boxes moved (95 of 100 by less)."""
    flips, apart, scores = 0, list[float](), list[float]()
    for first, second in zip(reference, found, strict=True):
        verdict, over = judge(first, rule)
        flips += verdict != judge(second, rule)[0]
        for index in range(len(over)):
            nearest = _nearest(over, index, second)
            if nearest is not None:
                apart.append(nearest[0])
                scores.append(nearest[1])
    lost = None if reference_map is None or found_map is None else (reference_map - found_map) * 100
    return Accuracy(found_map, lost, flips, len(reference), len(apart), _most(apart), max(scores) if scores else None)


def _nearest(over: Detections, index: int, found: Detections) -> tuple[float, float] | None:
    """Largest distance of a corner, in pixels, to the nearest box of the class, and the difference of their scores."""
    same = np.flatnonzero(found.class_ids == over.class_ids[index])
    if not len(same):
        return None
    apart = np.abs(found.boxes_xyxy_px[same] - over.boxes_xyxy_px[index]).max(axis=1)
    best = int(apart.argmin())
    return float(apart[best]), abs(float(found.scores[same[best]] - over.scores[index]))


def _most(values: Sequence[float]) -> float | None:
    return float(np.percentile(values, 95)) if values else None
