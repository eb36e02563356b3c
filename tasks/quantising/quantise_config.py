"""What is asked of a quantised model."""

from __future__ import annotations

from pydantic import Field

from data_contracts.base import Contract
from data_contracts.bundle import BuildWish, CalibrationMethod


class QuantiseConfig(Contract):
    """Whether and how the model is quantised, and what it may lose by it on the validation split."""

    wished: bool = Field(description="Try INT8; it is left out of the bundle where it does not hold its limits.")
    pictures: int = Field(ge=1, le=500, description="Training pictures from which ranges are taken.")
    method: CalibrationMethod = Field(
        description="Ranges from the extremes, or without the outermost 0.01 % of values."
    )
    max_loss: float = Field(
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="Most that a class may lose, in points of AP50, AP50-95 and recall.",
    )
    max_mean_loss: float = Field(
        ge=0, le=100, allow_inf_nan=False, description="Most that the mean over classes may lose, in points of mAP."
    )
    max_rounds: int = Field(ge=1, le=20, description="Quantised models that are tried, each with more left in float.")
    budget_s: float = Field(
        gt=0, le=86_400, allow_inf_nan=False, description="Seconds after which no further one is tried."
    )
    build_wishes: tuple[BuildWish, ...] = Field(
        description="Engines that hosts are asked to build, by provider and precision; recorded, not built here."
    )
