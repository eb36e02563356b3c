"""What a training reports while it runs; the training process sends it, the flow's process hears it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Started:
    """The training begins, or begins again: `pid` of its process, epochs planned, first epoch it runs (from 1)."""

    pid: int
    epochs: int
    first_epoch: int


@dataclass(frozen=True)
class BatchDone:
    """One step of an epoch; both count from 1."""

    epoch: int
    batch: int
    batches: int


@dataclass(frozen=True)
class EpochDone:
    """One epoch, counted from 1, with its metrics by name; they may be no numbers."""

    epoch: int
    epochs: int
    metrics: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class SamplesDrawn:
    """A picture that shows what the weights of this epoch find."""

    epoch: int
    picture: Path


Event = Started | BatchDone | EpochDone | SamplesDrawn

Observer = Callable[[Event], None]
