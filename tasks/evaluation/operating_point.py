"""What the line would see: the boxes over their thresholds, counted per picture, per class and per true box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data_contracts.bundle import VerdictRule
from data_contracts.detections import Detections, Verdict
from serving.verdict import judge
from tasks.evaluation.evaluation_result import PictureOutcome
from tasks.evaluation.matching import match_boxes
from tasks.ground_truth import GroundTruth

UNKNOWN_CLASS = -1
Counts = npt.NDArray[np.int64]


def map_classes(found: Detections, bundle_names: Sequence[str], names: Sequence[str]) -> Detections:
    """Class ids of the bundle as ids of the dataset; UNKNOWN_CLASS for a class that the dataset does not have."""
    ids = np.array([names.index(name) if name in names else UNKNOWN_CLASS for name in bundle_names], np.int64)
    return Detections(found.boxes_xyxy_px, found.scores, ids[found.class_ids])


def ratio(part: int, whole: int) -> float | None:
    """part / whole, or None when there is no whole."""
    return part / whole if whole else None


@dataclass(frozen=True, eq=False)
class OperatingPoint:
    """Counts int64 (pictures, classes), and per true box, in label order, whether it was found.

    A box of a class that the dataset does not have is a false alarm of the picture only, not of any class.
    """

    outcomes: tuple[PictureOutcome, ...]
    instances_of: Counts
    found_of: Counts
    false_alarms_of: Counts
    hits: npt.NDArray[np.bool_]

    @property
    def instances(self) -> Counts:
        """True boxes by class."""
        return np.asarray(self.instances_of.sum(axis=0))

    @property
    def found(self) -> Counts:
        """Found true boxes by class."""
        return np.asarray(self.found_of.sum(axis=0))

    @property
    def false_alarms(self) -> Counts:
        """False boxes by class."""
        return np.asarray(self.false_alarms_of.sum(axis=0))

    @property
    def good(self) -> npt.NDArray[np.bool_]:
        """Pictures without defects, bool (pictures,)."""
        return np.asarray(self.instances_of.sum(axis=1) == 0)


def measure_operating_point(
    truth: Sequence[GroundTruth],
    found: Sequence[Detections],
    rule: VerdictRule,
    bundle_names: Sequence[str],
    names: Sequence[str],
    iou: float,
) -> OperatingPoint:
    """Judge every picture as the line would, `found` being in classes of the bundle."""
    shape = (len(truth), len(names))
    instances, hit_counts, false_alarms = (np.zeros(shape, np.int64) for _ in range(3))
    outcomes, hits = [], [np.zeros(0, np.bool_)]
    for row, (true, boxes) in enumerate(zip(truth, found, strict=True)):
        verdict, over = judge(boxes, rule)
        over = map_classes(over, bundle_names, names)
        matched = match_boxes(over, true.boxes_xyxy_px, true.class_ids, iou)
        hit = np.zeros(len(true.class_ids), np.bool_)
        hit[matched[matched >= 0]] = True
        false_ids = over.class_ids[matched < 0]
        np.add.at(instances[row], true.class_ids, 1)
        np.add.at(hit_counts[row], true.class_ids[hit], 1)
        np.add.at(false_alarms[row], false_ids[false_ids != UNKNOWN_CLASS], 1)
        outcomes.append(picture_outcome(true.picture.name, hit, verdict, len(false_ids)))
        hits.append(hit)
    return OperatingPoint(tuple(outcomes), instances, hit_counts, false_alarms, np.concatenate(hits))


def picture_outcome(name: str, hit: npt.NDArray[np.bool_], verdict: Verdict, false_alarms: int) -> PictureOutcome:
    """One picture, from which of its true boxes were found."""
    missed = int((~hit).sum())
    return PictureOutcome(picture=name, defects=len(hit), verdict=verdict, missed=missed, false_alarms=false_alarms)


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
