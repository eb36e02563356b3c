"""What trained weights find on the test split, through the exported file and the code that answers requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from data_contracts.dataset import Split
from data_contracts.detections import Verdict

if TYPE_CHECKING:
    from data_contracts.bundle import VerdictRule
    from tasks.evaluation.operating_point import OperatingPoint
    from tasks.export import ExportedModel
    from tasks.job import TrainingJob
    from tasks.working_copy import WorkingCopy


@dataclass(frozen=True)
class Measures:
    """Numbers of one model file; thresholds are those of the validation split. Rates are None without their base."""

    map50: float
    map50_95: float
    escape_rate: float | None
    false_alarms_per_picture: float | None
    overkill_rate: float | None
    pictures: int
    true_boxes: int
    file_mib: float


@dataclass(frozen=True)
class Int8Measures:
    """INT8 beside FP32; `measures` is None where the bundle would have FP32 only, for the `reason`."""

    measures: Measures | None
    reason: str


def export_weights(weights: Path, job: TrainingJob, image_size: int, target: Path) -> ExportedModel:
    """The model file of some weights."""
    from tasks.export import export
    from tasks.yolo import configure_ultralytics

    configure_ultralytics(target / "home")
    return export(weights, image_size, target, job.export)


def measure_fp32(exported: ExportedModel, copy: WorkingCopy, job: TrainingJob) -> Measures:
    """The exported model as it is."""
    return _measure(exported.model, exported, thresholds(exported, copy, job), copy, job)


def measure_int8(exported: ExportedModel, copy: WorkingCopy, job: TrainingJob, target: Path) -> Int8Measures:
    """Quantise as `retrain` does and measure what would ship."""
    from tasks.quantise import quantise

    rule = thresholds(exported, copy, job)
    wished = job.quantise.model_copy(update={"wished": True})
    made = quantise(exported, rule, copy.folder, wished, job.evaluate, job.seal, target, lambda _: None)
    reason = made.made.reason if made.made else "not wished for"
    if made.model is None:
        return Int8Measures(None, reason)
    return Int8Measures(_measure(made.model, exported, rule, copy, job), reason)


def thresholds(exported: ExportedModel, copy: WorkingCopy, job: TrainingJob) -> VerdictRule:
    """Chosen on the validation split, as `retrain` does."""
    from tasks.thresholds import choose_thresholds

    return choose_thresholds.fn(exported, copy.folder, job.thresholds)


def _measure(model: Path, exported: ExportedModel, rule: VerdictRule, copy: WorkingCopy, job: TrainingJob) -> Measures:
    from tasks.evaluate import measure
    from tasks.ground_truth import read_ground_truth
    from tasks.pictures import detect_files, draft_detector

    truth = read_ground_truth(copy.folder, Split.TEST)
    detector = draft_detector(model, exported.spec)
    floor = min(job.evaluate.score_floor, *rule.thresholds)
    found = detect_files(detector, [true.picture for true in truth], floor)
    names = exported.spec.class_names
    counts, precisions = measure(truth, found, rule, names, copy.class_names, job.evaluate)
    return summary(counts, precisions.means, model.stat().st_size / 2**20)


def summary(counts: OperatingPoint, means: tuple[float | None, float | None], file_mib: float) -> Measures:
    """The numbers of a table row from what was counted picture by picture."""
    true_boxes = int(counts.instances.sum())
    found = int(counts.found.sum())
    false_alarms = sum(outcome.false_alarms for outcome in counts.outcomes)
    overkill = [outcome.verdict is Verdict.NG for outcome in counts.outcomes if not outcome.defects]
    return Measures(
        map50=means[0] or 0.0,
        map50_95=means[1] or 0.0,
        escape_rate=(true_boxes - found) / true_boxes if true_boxes else None,
        false_alarms_per_picture=false_alarms / len(counts.outcomes) if counts.outcomes else None,
        overkill_rate=sum(overkill) / len(overkill) if overkill else None,
        pictures=len(counts.outcomes),
        true_boxes=true_boxes,
        file_mib=file_mib,
    )
