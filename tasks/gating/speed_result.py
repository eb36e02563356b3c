"""What candidate and champion cost: time of a call and peak memory, per batch size, measured in one run."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from data_contracts.base import Contract, Sha256


class Cost(Contract):
    """One bundle at one batch size. Null where it could not be measured."""

    seconds: float | None = Field(description="Shortest of its calls.")
    peak_mib: float | None = Field(description="Most memory of a process that does nothing else.")


class BatchCost(Contract):
    """Both at one batch size, called in turns in one process, so that a busy machine slows both."""

    batch: int = Field(ge=1)
    candidate: Cost
    champion: Cost


class SpeedResult(Contract):
    """Candidate and champion on one machine in one run."""

    candidate: Sha256
    champion: Sha256
    batches: tuple[BatchCost, ...] = Field(min_length=1)


class SpeedRequest(Contract):
    """What the measuring process is asked for. Read from its standard input."""

    bundles: tuple[Path, ...] = Field(min_length=1, description="Called in turns.")
    batch: int = Field(ge=1)
    rounds: int = Field(ge=1, description="Measured calls of each bundle.")


class SpeedAnswer(Contract):
    """Written to its standard output."""

    seconds: tuple[float, ...] = Field(description="Shortest of its calls, by bundle.")
    peak_mib: float | None = Field(description="Of the process, null where the system does not tell.")
