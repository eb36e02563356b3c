"""What a detector found in one picture, and the verdict that follows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field, TypeAdapter

from data_contracts.base import Contract, Fraction

Pixels = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class Verdict(StrEnum):
    """What the line does with the part."""

    OK = "OK"
    NG = "NG"


class Detection(Contract):
    """One defect box of one picture, in pixels of the displayed picture (EXIF orientation applied)."""

    class_id: int = Field(ge=0, description="Position in the bundle's class list.")
    class_name: str
    score: Fraction
    box_xyxy_px: tuple[Pixels, Pixels, Pixels, Pixels] = Field(description="Left, top, right, bottom.")


_RECORDS: TypeAdapter[tuple[Detection, ...]] = TypeAdapter(tuple[Detection, ...])


@dataclass(frozen=True, eq=False)
class Detections:
    """All boxes of one picture, best score first.

    boxes_xyxy_px: float32 (n, 4), pixels of the displayed picture; scores: float32 (n,); class_ids: int64 (n,).
    """

    boxes_xyxy_px: npt.NDArray[np.float32]
    scores: npt.NDArray[np.float32]
    class_ids: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        count = len(self.scores)
        if self.boxes_xyxy_px.shape != (count, 4) or self.class_ids.shape != (count,):
            raise ValueError(
                f"boxes {self.boxes_xyxy_px.shape}, scores {self.scores.shape} and class ids {self.class_ids.shape} "
                "do not belong together"
            )

    def __len__(self) -> int:
        return len(self.scores)

    @classmethod
    def empty(cls) -> Detections:
        """No boxes."""
        return cls(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))

    def where(self, keep: npt.NDArray[np.bool_]) -> Detections:
        """The boxes for which `keep`, bool (n,), holds; the order stays."""
        return Detections(self.boxes_xyxy_px[keep], self.scores[keep], self.class_ids[keep])

    def over(self, thresholds: npt.NDArray[np.float32]) -> Detections:
        """The boxes whose score reaches the threshold of their class; `thresholds` is float32 (classes,)."""
        return self.where(self.scores >= thresholds[self.class_ids])

    def records(self, class_names: tuple[str, ...]) -> tuple[Detection, ...]:
        """The same boxes as checked records, for JSON."""
        rows = zip(self.class_ids.tolist(), self.scores.tolist(), self.boxes_xyxy_px.tolist(), strict=True)
        # All at once: one call of the validator costs a fraction of a call for each box.
        return _RECORDS.validate_python(
            [
                {"class_id": class_id, "class_name": class_names[class_id], "score": score, "box_xyxy_px": box}
                for class_id, score, box in rows
            ]
        )

    @classmethod
    def from_records(cls, records: tuple[Detection, ...]) -> Detections:
        """Arrays from records."""
        if not records:
            return cls.empty()
        return cls(
            np.array([record.box_xyxy_px for record in records], np.float32),
            np.array([record.score for record in records], np.float32),
            np.array([record.class_id for record in records], np.int64),
        )
