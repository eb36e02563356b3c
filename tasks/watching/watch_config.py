"""What is watched of a training, and how often."""

from __future__ import annotations

from pydantic import Field

from data_contracts.base import Contract


class WatchConfig(Contract):
    """What a training shows while it runs. Nothing of it changes the training."""

    progress_every_s: float = Field(
        ge=1, le=600, allow_inf_nan=False, description="Seconds between two updates of the progress in Prefect."
    )
    curves_every_s: float = Field(
        ge=1,
        le=3600,
        allow_inf_nan=False,
        description="Least seconds between two updates of curves and pictures in Prefect, which stores each one.",
    )
    sample_epochs: int = Field(ge=1, le=10_000, description="Epochs from one sheet of sample pictures to the next.")
    sample_pictures: int = Field(ge=1, le=24, description="Validation pictures on a sheet, the same ones each time.")
    metrics_every_s: float = Field(
        ge=1, le=600, allow_inf_nan=False, description="Seconds between two samples of processor, memory, disk and GPU."
    )
