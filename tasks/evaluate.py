"""Measure a sealed bundle on a split, through the code and the file that answer requests.

Two kinds of numbers. Average precision looks at all boxes from a fixed score on, so it does not move when thresholds
do. The operating point is what the line would see: boxes over the bundle's thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from prefect import task
from pydantic import Field

from data_contracts.base import Contract, Fraction, Sha256, canonical_json, sha256_of
from data_contracts.bundle import VerdictRule
from data_contracts.dataset import Split
from data_contracts.detections import Detections, Verdict
from data_contracts.errors import DatasetError, Problem
from serving.bundle import hash_file, open_bundle
from serving.verdict import judge
from tasks.average_precision import AveragePrecisions, average_precisions
from tasks.ground_truth import GroundTruth, read_ground_truth
from tasks.matching import match_boxes
from tasks.pictures import bundle_detector, detect_files

RESULT_FILE = "evaluation.json"
PICTURES_FILE = "evaluation-pictures.json"
UNKNOWN_CLASS = -1


class EvaluateConfig(Contract):
    """Fixed settings of a measurement; they are stored with its result."""

    score_floor: float = Field(gt=0, le=0.05, description="Boxes from this score on count for average precision.")
    max_detections: int = Field(ge=1, le=1000, description="Best boxes of each picture and class that count for it.")
    match_iou: Fraction = Field(description="Overlap from which on a box over its threshold is the true one.")


class ClassResult(Contract):
    """One class on one split. Numbers that cannot be had, for want of true or found boxes, are null."""

    name: str
    instances: int = Field(ge=0, description="True boxes.")
    ap50: float | None
    ap50_95: float | None
    threshold: float | None = Field(description="Null when the bundle does not know the class.")
    found: int = Field(ge=0, description="True boxes with a found box over the threshold.")
    missed: int = Field(ge=0)
    escape_rate: float | None = Field(description="Missed / instances.")
    false_alarms: int = Field(ge=0, description="Boxes over the threshold that are no true box.")
    precision: float | None = Field(description="Found boxes that are true, of all over the threshold.")


class PictureOutcome(Contract):
    """One picture at the operating point."""

    picture: str
    defects: int = Field(ge=0, description="True boxes.")
    verdict: Verdict
    missed: int = Field(ge=0)
    false_alarms: int = Field(ge=0)


class EvaluationResult(Contract):
    """What a bundle does on one split."""

    digest: Sha256
    split: Split
    pictures: int = Field(ge=0)
    pictures_sha256: Sha256 = Field(description="Of the pictures, their true boxes and the class list.")
    settings: EvaluateConfig
    engine: str
    precision: str = Field(description="Numeric precision of the engine.")
    map50: float | None
    map50_95: float | None
    classes: tuple[ClassResult, ...]
    defect_pictures: int = Field(ge=0)
    escaped_pictures: int = Field(ge=0, description="Pictures with defects that were judged OK.")
    good_pictures: int = Field(ge=0)
    overkill_pictures: int = Field(ge=0, description="Pictures without defects that were judged NG.")
    overkill_rate: float | None = Field(description="Null when there is no picture without defects.")
    false_alarms_per_picture: float | None


def map_classes(found: Detections, bundle_names: Sequence[str], names: Sequence[str]) -> Detections:
    """Class ids of the bundle as ids of the dataset; UNKNOWN_CLASS for a class that the dataset does not have."""
    ids = np.array([names.index(name) if name in names else UNKNOWN_CLASS for name in bundle_names], np.int64)
    return Detections(found.boxes_xyxy_px, found.scores, ids[found.class_ids])


def judge_picture(
    true: GroundTruth, over: Detections, verdict: Verdict, iou: float, name: str
) -> tuple[PictureOutcome, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """One picture at the operating point: the outcome, which found boxes are true, which true boxes were found."""
    matched = match_boxes(over, true.boxes_xyxy_px, true.class_ids, iou)
    hit = np.zeros(len(true.class_ids), np.bool_)
    hit[matched[matched >= 0]] = True
    outcome = PictureOutcome(
        picture=name,
        defects=len(hit),
        verdict=verdict,
        missed=int((~hit).sum()),
        false_alarms=int((matched < 0).sum()),
    )
    return outcome, matched >= 0, hit


def ratio(part: int, whole: int) -> float | None:
    """part / whole, or None when there is no whole."""
    return part / whole if whole else None


class OperatingPoint:
    """Counts per class and per picture, of the boxes over their thresholds."""

    def __init__(self, class_count: int) -> None:
        self.instances = np.zeros(class_count, np.int64)
        self.found = np.zeros(class_count, np.int64)
        self.false_alarms = np.zeros(class_count, np.int64)
        self.outcomes: list[PictureOutcome] = []

    def add(self, true: GroundTruth, over: Detections, verdict: Verdict, iou: float, name: str) -> None:
        """Count one picture. A box of a class that the dataset does not have is a false alarm of the picture only."""
        outcome, is_true, hit = judge_picture(true, over, verdict, iou, name)
        self.outcomes.append(outcome)
        np.add.at(self.instances, true.class_ids, 1)
        np.add.at(self.found, true.class_ids[hit], 1)
        false_ids = over.class_ids[~is_true]
        np.add.at(self.false_alarms, false_ids[false_ids != UNKNOWN_CLASS], 1)


def class_results(
    names: Sequence[str], counts: OperatingPoint, precisions: AveragePrecisions, thresholds: dict[str, float]
) -> tuple[ClassResult, ...]:
    """One result per class of the dataset; a class without true boxes stays in the list."""
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
            )
        )
    return tuple(results)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def picture_counts(outcomes: Sequence[PictureOutcome]) -> dict[str, int | float | None]:
    """The fields of an EvaluationResult that count pictures."""
    defect = [one for one in outcomes if one.defects]
    good = [one for one in outcomes if not one.defects]
    overkill = sum(one.verdict is Verdict.NG for one in good)
    return {
        "pictures": len(outcomes),
        "defect_pictures": len(defect),
        "escaped_pictures": sum(one.verdict is Verdict.OK for one in defect),
        "good_pictures": len(good),
        "overkill_pictures": overkill,
        "overkill_rate": ratio(overkill, len(good)),
        "false_alarms_per_picture": ratio(sum(one.false_alarms for one in outcomes), len(outcomes)),
    }


def measure(
    truth: Sequence[GroundTruth],
    found: Sequence[Detections],
    rule: VerdictRule,
    bundle_names: Sequence[str],
    names: Sequence[str],
    config: EvaluateConfig,
) -> tuple[OperatingPoint, AveragePrecisions]:
    """Both kinds of numbers from what was found, in classes of the bundle, at least from `config.score_floor` on."""
    counts = OperatingPoint(len(names))
    for true, boxes in zip(truth, found, strict=True):
        verdict, over = judge(boxes, rule)
        counts.add(true, map_classes(over, bundle_names, names), verdict, config.match_iou, true.picture.name)
    mapped = [map_classes(boxes, bundle_names, names) for boxes in found]
    known = [boxes.where((boxes.class_ids != UNKNOWN_CLASS) & (boxes.scores >= config.score_floor)) for boxes in mapped]
    return counts, average_precisions(truth, known, len(names), config.max_detections)


def hash_pictures(truth: Sequence[GroundTruth], names: Sequence[str]) -> str:
    """Hash of what is measured on: the same for two bundles only if pictures, true boxes and classes are the same."""
    entries = [
        [hash_file(true.picture).sha256, true.class_ids.tolist(), np.round(true.boxes_xyxy_px, 3).tolist()]
        for true in truth
    ]
    return sha256_of(canonical_json([list(names), sorted(entries, key=lambda entry: str(entry[0]))]))


def evaluate(
    bundle_path: Path, truth: Sequence[GroundTruth], names: Sequence[str], split: Split, config: EvaluateConfig
) -> tuple[EvaluationResult, tuple[PictureOutcome, ...]]:
    """Run a sealed bundle over a split. Works for any bundle: classes are matched by name.

    Raises BundleError for a broken bundle, DatasetError for a split without pictures.
    """
    if not truth:
        raise DatasetError(Problem(f"{split} split", "pictures to measure on", "none", "Add pictures to the split."))
    bundle = open_bundle(bundle_path)
    detector = bundle_detector(bundle)
    rule, bundle_names = bundle.manifest.verdict, bundle.manifest.model.class_names
    floor = min(config.score_floor, *rule.thresholds)
    found = detect_files(detector, [true.picture for true in truth], floor)
    counts, precisions = measure(truth, found, rule, bundle_names, names, config)
    map50, map50_95 = precisions.means
    result = EvaluationResult(
        digest=bundle.digest,
        split=split,
        pictures_sha256=hash_pictures(truth, names),
        settings=config,
        engine=detector.engine.provider,
        precision=detector.engine.precision,
        map50=map50,
        map50_95=map50_95,
        classes=class_results(names, counts, precisions, dict(zip(bundle_names, rule.thresholds, strict=True))),
        **picture_counts(counts.outcomes),
    )
    return result, tuple(counts.outcomes)


def write_result(result: EvaluationResult, outcomes: Sequence[PictureOutcome], folder: Path) -> Path:
    """Write the result, and beside it one line per picture for later comparison; returns the result's path."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "\n".join(outcome.model_dump_json() for outcome in outcomes)
    _replace(folder / PICTURES_FILE, lines + "\n")
    _replace(folder / RESULT_FILE, result.to_json())
    return folder / RESULT_FILE


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def flat_metrics(result: EvaluationResult) -> dict[str, float]:
    """The numbers of a result under names for MLflow: those that exist."""
    values: dict[str, float | None] = {
        "map50": result.map50,
        "map50_95": result.map50_95,
        "overkill_rate": result.overkill_rate,
        "escaped_pictures": result.escaped_pictures,
        "false_alarms_per_picture": result.false_alarms_per_picture,
        **{f"escape_rate/{one.name}": one.escape_rate for one in result.classes},
        **{f"ap50/{one.name}": one.ap50 for one in result.classes},
    }
    return {f"{result.split}/{name}": float(value) for name, value in values.items() if value is not None}


@task
def evaluate_bundle(
    bundle_path: Path,
    working_copy: Path,
    class_names: tuple[str, ...],
    split: Split,
    config: EvaluateConfig,
    target: Path,
) -> EvaluationResult:
    """Measure a sealed bundle, today's champion as well as a candidate, on a split of a working copy."""
    result, outcomes = evaluate(bundle_path, read_ground_truth(working_copy, split), class_names, split, config)
    write_result(result, outcomes, target)
    return result
