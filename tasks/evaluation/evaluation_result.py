"""What a measurement of a bundle says: per class, per picture and over a split, with intervals."""

from __future__ import annotations

from pydantic import Field

from data_contracts.base import Contract, Fraction, Sha256
from data_contracts.dataset import Split
from data_contracts.detections import Verdict


class EvaluateConfig(Contract):
    """Fixed settings of a measurement; they are stored with its result."""

    score_floor: float = Field(gt=0, le=0.05, description="Boxes from this score on count for average precision.")
    max_detections: int = Field(ge=1, le=1000, description="Best boxes of each picture and class that count for it.")
    match_iou: Fraction = Field(description="Overlap from which on a box over its threshold is the true one.")
    rounds: int = Field(ge=100, le=20_000, description="How often the pictures are drawn again for the intervals.")
    confidence: float = Field(gt=0.5, lt=1, description="Share of the drawings that an interval holds, two-sided.")
    seed: int = Field(ge=0, description="Of the drawings: the same for candidate and champion.")


class Interval(Contract):
    """Where a number lies when the pictures are drawn again, at the confidence of the settings."""

    low: float = Field(allow_inf_nan=False)
    high: float = Field(allow_inf_nan=False)


class ClassIntervals(Contract):
    """Intervals of one class; null where too few drawings have a number."""

    ap50: Interval | None
    escape_rate: Interval | None
    false_alarms_per_picture: Interval | None
    overkill_rate: Interval | None


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
    overkill_rate: float | None = Field(default=None, description="Pictures without defects with a box of this class.")
    intervals: ClassIntervals | None = None


class PictureOutcome(Contract):
    """One picture at the operating point."""

    picture: str
    defects: int = Field(ge=0, description="True boxes.")
    verdict: Verdict
    missed: int = Field(ge=0)
    false_alarms: int = Field(ge=0)


class SplitIntervals(Contract):
    """Intervals over the split; null where too few drawings have a number."""

    map50: Interval | None
    map50_95: Interval | None
    overkill_rate: Interval | None
    false_alarms_per_picture: Interval | None


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
    intervals: SplitIntervals | None = None


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
    bounds = result.intervals.map50 if result.intervals else None
    if bounds is not None:
        values |= {"map50_low": bounds.low, "map50_high": bounds.high}
    return {f"{result.split}/{name}": float(value) for name, value in values.items() if value is not None}
