"""Measure a sealed bundle on a split, through the code and the file that answer requests.

Two kinds of numbers. Average precision looks at all boxes from a fixed score on, so it does not move when thresholds
do. The operating point is what the line would see: boxes over the bundle's thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from prefect import task

from data_contracts.base import canonical_json, sha256_of
from data_contracts.bundle import Precision, VerdictRule
from data_contracts.dataset import Split
from data_contracts.detections import Detections
from data_contracts.errors import DatasetError, Problem
from serving.bundle import hash_file, open_bundle
from serving.detector import open_detector
from tasks.evaluation.average_precision import AveragePrecisions, average_precisions
from tasks.evaluation.evaluation_intervals import class_intervals, split_intervals
from tasks.evaluation.evaluation_result import (
    ClassIntervals,
    ClassResult,
    EvaluateConfig,
    EvaluationResult,
    PictureOutcome,
)
from tasks.evaluation.found_boxes import BOXES_FILE, save_boxes
from tasks.evaluation.operating_point import (
    UNKNOWN_CLASS,
    OperatingPoint,
    map_classes,
    measure_operating_point,
    picture_counts,
    ratio,
)
from tasks.evaluation.picture_scores import SCORES_FILE, PictureScores, save_scores, score_pictures
from tasks.ground_truth import GroundTruth, read_ground_truth
from tasks.pictures import cpu_options, detect_files

RESULT_FILE = "evaluation.json"
PICTURES_FILE = "evaluation-pictures.json"


@dataclass(frozen=True, eq=False)
class Measured:
    """A result, and per picture what it was counted from; `found` is in classes of the bundle."""

    result: EvaluationResult
    outcomes: tuple[PictureOutcome, ...]
    scores: PictureScores
    found: tuple[Detections, ...]


def class_results(
    names: Sequence[str],
    counts: OperatingPoint,
    precisions: AveragePrecisions,
    thresholds: dict[str, float],
    intervals: Sequence[ClassIntervals],
) -> tuple[ClassResult, ...]:
    """One result per class of the dataset; a class without true boxes stays in the list."""
    good = counts.good
    results = []
    for index, name in enumerate(names):
        instances, found = int(counts.instances[index]), int(counts.found[index])
        false_alarms = int(counts.false_alarms[index])
        results.append(
            ClassResult(
                name=name,
                instances=instances,
                ap50=_number(precisions.at_50[index]),
                ap50_95=_number(precisions.at_50_95[index]),
                threshold=thresholds.get(name),
                found=found,
                missed=instances - found,
                escape_rate=ratio(instances - found, instances),
                false_alarms=false_alarms,
                precision=ratio(found, found + false_alarms),
                overkill_rate=ratio(int((counts.false_alarms_of[good, index] > 0).sum()), int(good.sum())),
                intervals=intervals[index],
            )
        )
    return tuple(results)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def countable(
    found: Sequence[Detections], bundle_names: Sequence[str], names: Sequence[str], score_floor: float
) -> list[Detections]:
    """What counts for average precision: boxes from the floor on, in classes of the dataset."""
    mapped = [map_classes(boxes, bundle_names, names) for boxes in found]
    return [boxes.where((boxes.class_ids != UNKNOWN_CLASS) & (boxes.scores >= score_floor)) for boxes in mapped]


def measure(
    truth: Sequence[GroundTruth],
    found: Sequence[Detections],
    rule: VerdictRule,
    bundle_names: Sequence[str],
    names: Sequence[str],
    config: EvaluateConfig,
) -> tuple[OperatingPoint, AveragePrecisions]:
    """Both kinds of numbers from what was found, in classes of the bundle, at least from `config.score_floor` on."""
    counts = measure_operating_point(truth, found, rule, bundle_names, names, config.match_iou)
    known = countable(found, bundle_names, names, config.score_floor)
    return counts, average_precisions(truth, known, len(names), config.max_detections)


def hash_pictures(truth: Sequence[GroundTruth], names: Sequence[str]) -> str:
    """Hash of what is measured on: the same for two bundles only if pictures, true boxes and classes are the same."""
    entries = [
        [hash_file(true.picture).sha256, true.class_ids.tolist(), np.round(true.boxes_xyxy_px, 3).tolist()]
        for true in truth
    ]
    return sha256_of(canonical_json([list(names), sorted(entries, key=lambda entry: str(entry[0]))]))


def evaluate(
    bundle_path: Path,
    truth: Sequence[GroundTruth],
    names: Sequence[str],
    split: Split,
    config: EvaluateConfig,
    precision: Precision = "fp32",
) -> Measured:
    """Run a sealed bundle over a split. Works for any bundle: classes are matched by name.

    Raises BundleError for a broken bundle or one without a model of that precision, DatasetError for a split without
    pictures.
    """
    if not truth:
        raise DatasetError(Problem(f"{split} split", "pictures to measure on", "none", "Add pictures to the split."))
    bundle = open_bundle(bundle_path)
    detector = open_detector(bundle, replace(cpu_options(), precision=precision))
    rule, bundle_names = bundle.manifest.verdict, bundle.manifest.model.class_names
    floor = min(config.score_floor, *rule.thresholds)
    found = detect_files(detector, [true.picture for true in truth], floor)
    counts, precisions = measure(truth, found, rule, bundle_names, names, config)
    known = countable(found, bundle_names, names, config.score_floor)
    scores = score_pictures(truth, known, len(names), config.max_detections, counts.hits)
    map50, map50_95 = precisions.means
    thresholds = dict(zip(bundle_names, rule.thresholds, strict=True))
    result = EvaluationResult(
        digest=bundle.digest,
        split=split,
        pictures_sha256=hash_pictures(truth, names),
        settings=config,
        engine=detector.engine.provider,
        precision=detector.engine.precision,
        map50=map50,
        map50_95=map50_95,
        classes=class_results(names, counts, precisions, thresholds, class_intervals(counts, scores, config)),
        intervals=split_intervals(counts, scores, config),
        **picture_counts(counts.outcomes),
    )
    return Measured(result, counts.outcomes, scores, tuple(found))


def write_result(measured: Measured, folder: Path) -> Path:
    """Write the result, and beside it what each picture added to it; returns the result's path."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "\n".join(outcome.model_dump_json() for outcome in measured.outcomes)
    _replace(folder / PICTURES_FILE, lines + "\n")
    save_scores(measured.scores, folder / SCORES_FILE)
    save_boxes(measured.found, folder / BOXES_FILE)
    _replace(folder / RESULT_FILE, measured.result.to_json())
    return folder / RESULT_FILE


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


@task
def evaluate_bundle(
    bundle_path: Path,
    working_copy: Path,
    class_names: tuple[str, ...],
    split: Split,
    config: EvaluateConfig,
    target: Path,
    precision: Precision = "fp32",
) -> EvaluationResult:
    """Measure a sealed bundle, today's champion as well as a candidate, on a split of a working copy."""
    measured = evaluate(bundle_path, read_ground_truth(working_copy, split), class_names, split, config, precision)
    write_result(measured, target)
    return measured.result
