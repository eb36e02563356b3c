"""What a training process is told, as a file."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, JsonValue

from data_contracts.base import Contract


class TrainingOrder(Contract):
    """One training, from its start or from a checkpoint.

    `model` is what it starts from, or the checkpoint when `resume` is set; `arguments` are those of `yolo train`;
    `lr_factor` scales the learning rate that they name; every `sample_epochs` epochs a sheet of
    `sample_count` sample pictures is drawn, never at 0.
    """

    parent_pid: int = Field(ge=1)
    home: Path
    model: Path
    resume: bool
    data_yaml: Path
    run_dir: Path
    arguments: dict[str, JsonValue]
    threads: int = Field(ge=0)
    lr_factor: float = Field(gt=0, le=1)
    sample_epochs: int = Field(ge=0)
    sample_count: int = Field(ge=0)

    @property
    def epochs(self) -> int:
        """Epochs planned."""
        return int(str(self.arguments["epochs"]))
