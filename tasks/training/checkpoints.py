"""Checkpoints that a training can be resumed from: verified, hashed, and kept until a newer one is.

    checkpoints/epoch-0007.pt     what Ultralytics saves after an epoch
    checkpoints/epoch-0007.json   its SHA-256 and what the epoch reported; written last, so it vouches for the file

The weights of the two newest epochs are kept, with those that were the best then, and the records of all epochs.
"""

from __future__ import annotations

import csv
import io
import math
import shutil
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from data_contracts.base import Contract, Sha256
from serving.atomic import write_atomically
from serving.bundle import hash_file
from tasks.training.events import EpochDone

FOLDER = "checkpoints"
KEPT = 2


class Checkpoint(Contract):
    """One epoch that was saved. `final`: nothing follows it but the validation of the best weights."""

    epoch: int = Field(ge=1)
    epochs: int = Field(ge=1)
    best_epoch: int = Field(ge=1)
    sha256: Sha256
    final: bool
    metrics: dict[str, float]
    seconds: float

    @property
    def done(self) -> EpochDone:
        """What the epoch reported, apart from metrics that were no numbers."""
        return EpochDone(self.epoch, self.epochs, dict(self.metrics), self.seconds)


@dataclass(frozen=True)
class Found:
    """The newest checkpoint that is whole, and the files that should be but are not."""

    checkpoint: Checkpoint | None
    damaged: tuple[Path, ...] = ()


def weights_file(run_dir: Path, epoch: int) -> Path:
    """Where the checkpoint of an epoch lies."""
    return run_dir / FOLDER / f"epoch-{epoch:04}.pt"


def draft_file(run_dir: Path) -> Path:
    """Where a checkpoint is written before it is verified."""
    return run_dir / FOLDER / "draft.pt"


def record_file(run_dir: Path, epoch: int) -> Path:
    """Where the record of an epoch lies."""
    return weights_file(run_dir, epoch).with_suffix(".json")


def read_record(run_dir: Path, epoch: int) -> Checkpoint | None:
    """The record of an epoch; None before the first."""
    file = record_file(run_dir, epoch)
    return Checkpoint.model_validate_json(file.read_bytes()) if file.is_file() else None


def keep(run_dir: Path, draft: Path, report: EpochDone, *, best: bool, final: bool) -> Checkpoint:
    """Make a verified draft the newest checkpoint, and remove what is needed no more."""
    before = read_record(run_dir, report.epoch - 1)
    checkpoint = Checkpoint(
        epoch=report.epoch, epochs=report.epochs, best_epoch=report.epoch if best or not before else before.best_epoch,
        sha256=hash_file(draft).sha256, final=final, seconds=report.seconds,
        metrics={name: value for name, value in report.metrics.items() if math.isfinite(value)},
    )  # fmt: skip
    draft.replace(weights_file(run_dir, report.epoch))
    write_atomically(record_file(run_dir, report.epoch), checkpoint.to_json())
    wanted = {
        weights_file(run_dir, number) for one in (checkpoint, before) if one for number in (one.epoch, one.best_epoch)
    }
    for file in (run_dir / FOLDER).glob("epoch-*.pt"):
        if file not in wanted:
            file.unlink()
    return checkpoint


def history(run_dir: Path) -> list[Checkpoint]:
    """The records of all saved epochs, in order."""
    records = sorted((run_dir / FOLDER).glob("epoch-*.json"))
    return [Checkpoint.model_validate_json(record.read_bytes()) for record in records]


def newest_whole(run_dir: Path) -> Found:
    """The newest checkpoint that a training can go on from.

    One that nothing follows is passed over: the epoch before it leads to the last validation again.
    """
    damaged: list[Path] = []
    for checkpoint in reversed(history(run_dir)[-KEPT:]):
        if checkpoint.final:
            continue
        file = weights_file(run_dir, checkpoint.epoch)
        if file.is_file() and hash_file(file).sha256 == checkpoint.sha256:
            return Found(checkpoint, tuple(damaged))
        damaged.append(file)
    return Found(None, tuple(damaged))


def go_back_to(run_dir: Path, checkpoint: Checkpoint | None) -> None:
    """Leave in `run_dir` what was there when `checkpoint` was saved; None: when the training began."""
    draft_file(run_dir).unlink(missing_ok=True)
    epoch = checkpoint.epoch if checkpoint else 0
    for record in history(run_dir):
        if record.epoch > epoch:
            record_file(run_dir, record.epoch).unlink()
            weights_file(run_dir, record.epoch).unlink(missing_ok=True)
    table = run_dir / "results.csv"
    if table.is_file():
        write_atomically(table, rows_until(table.read_text("utf-8"), epoch))
    if checkpoint:
        shutil.copyfile(weights_file(run_dir, checkpoint.best_epoch), run_dir / "weights" / "best.pt")


def rows_until(table: str, epoch: int) -> str:
    """The head of a results table and its rows up to an epoch; a torn row is left out.

    >>> rows_until("epoch,time\\n1,0.5\\n2,1.0\\n3", 2)
    'epoch,time\\n1,0.5\\n2,1.0\\n'
    """
    rows = list(csv.reader(io.StringIO(table)))
    kept = [row for row in rows[1:] if len(row) == len(rows[0]) and int(row[0]) <= epoch]
    return "".join(",".join(row) + "\n" for row in [*rows[:1], *kept])
