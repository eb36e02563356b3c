"""The parts of the gate report that show something: curves, confusion matrix, and crops of the worst faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_contracts.detections import Detections
from data_contracts.errors import ImageError
from serving.verdict import judge
from tasks.evaluation.bootstrap import RECALLS
from tasks.evaluation.evaluation_result import ClassResult
from tasks.evaluation.operating_point import UNKNOWN_CLASS, map_classes
from tasks.gate_report.confusion import confusion_matrix
from tasks.gate_report.fault_crops import fault_crop
from tasks.gate_report.faults import Fault, Judged, worst_faults
from tasks.gate_report.gate_case import GateCase
from tasks.gate_report.gate_charts import Line, curve_svg
from tasks.gate_report.gate_curves import THRESHOLDS, class_curves
from tasks.pictures import read_picture
from tasks.reporting.report_pictures import data_uri

Section = dict[str, Any]
MOST_CLASSES = 24
"""Classes whose curves and confusion are shown; the table lists all."""
WORST = 12
"""Crops of each kind."""


def curves_section(case: GateCase) -> Section:
    """Both charts of each class that has true boxes."""
    results = case.evidence.candidate.classes
    shown = [(number, one) for number, one in enumerate(results) if one.instances]
    return {
        "classes": [_charts(case, number, one) for number, one in shown[:MOST_CLASSES]],
        "more": max(0, len(shown) - MOST_CLASSES),
        "without": [one.name for one in results if not one.instances],
    }


def _charts(case: GateCase, number: int, one: ClassResult) -> Section:
    sides = [("champion", case.champion_scores), ("candidate", case.scores)]
    curves = [(kind, found) for kind, scores in sides if scores and (found := class_curves(scores, number))]
    recall = one.found / one.instances
    point = (recall, one.precision) if one.precision is not None else None
    both = 0.0 if one.precision is None or not one.found else 2 * recall * one.precision / (recall + one.precision)
    at = None if one.threshold is None else (one.threshold, both)
    return {
        "name": one.name,
        "precision": curve_svg(
            [Line(kind, RECALLS, found.precision) for kind, found in curves],
            "recall", "precision", point, f"{one.name}: precision over recall",
        ),
        "f1": curve_svg(
            [Line(kind, THRESHOLDS, found.f1) for kind, found in curves],
            "threshold", "F1", at, f"{one.name}: F1 over threshold",
        ),
    }  # fmt: skip


def judged_pictures(case: GateCase) -> list[Judged]:
    """All pictures with what was found in classes of the dataset. Boxes of classes that it lacks are left out."""
    rule, known, names = case.manifest.verdict, case.manifest.model.class_names, case.names
    limits = dict(zip(known, rule.thresholds, strict=True))
    thresholds = [limits.get(name, 1.0) for name in names]
    iou = case.evidence.candidate.settings.match_iou

    def of_dataset(boxes: Detections) -> Detections:
        mapped = map_classes(boxes, known, names)
        return mapped.where(mapped.class_ids != UNKNOWN_CLASS)

    return [
        Judged(true, of_dataset(boxes), of_dataset(judge(boxes, rule)[1]), thresholds, names, iou)
        for true, boxes in zip(case.truth, case.found, strict=True)
    ]


def confusion_section(case: GateCase, judged: Sequence[Judged]) -> Section | None:
    """Counts, and how strong each cell is shown: its share of the row."""
    names = case.names
    if len(names) > MOST_CLASSES:
        return None
    matrix = confusion_matrix(case.truth, [one.over for one in judged], len(names), judged[0].iou if judged else 0.5)
    rows = []
    for name, counts in zip((*names, "background"), matrix.tolist(), strict=True):
        whole = sum(counts) or 1
        rows.append((name, [(count, f"{count / whole:.2f}") for count in counts]))
    return {"names": (*names, "nothing"), "rows": rows}


def faults_section(case: GateCase, judged: Sequence[Judged]) -> Section:
    """The worst of both kinds as crops with captions."""
    misses, alarms = worst_faults(judged, WORST)
    results = case.evidence.candidate.classes

    def shown(fault: Fault) -> Section:
        true = case.truth[fault.picture]
        try:
            source: str | None = data_uri(fault_crop(read_picture(true.picture), fault))
        except (ImageError, OSError):
            source = None
        name = case.names[fault.class_id]
        return {"source": source, "name": name, "words": fault.words, "passes": fault.passes, "file": true.picture.name}

    return {
        "misses": [shown(fault) for fault in misses],
        "alarms": [shown(fault) for fault in alarms],
        "missed": sum(one.missed for one in results),
        "false": sum(one.false_alarms for one in results),
    }
