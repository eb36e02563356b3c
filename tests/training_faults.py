"""A training process that something happens to: `python training_faults.py FAULT ORDER DESCRIPTOR`.

Each fault is the real thing inside the real training, once: the folder of the training remembers that it happened.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks import yolo
from tasks.training import child
from tasks.training.order import TrainingOrder

EPOCH = 2
"""The fault comes at the first batch of this epoch, counted from 0: two epochs are saved."""


def not_a_number(trainer: Any, batch: Any) -> None:
    """A picture of which the training makes NaN."""
    batch["img"] = batch["img"] * float("nan")


def too_much(trainer: Any, batch: Any) -> None:
    """More memory than any machine has, asked of torch."""
    import torch

    torch.empty(2**50)


def silence(trainer: Any, batch: Any) -> None:
    """It hangs."""
    time.sleep(600)


def death(trainer: Any, batch: Any) -> None:
    """What a fault in native code does."""
    os.kill(os.getpid(), 11)


def full_disk(trainer: Any, batch: Any) -> None:
    """The next checkpoint is written to a device that is always full."""
    (trainer.save_dir / "checkpoints" / "draft.pt").symlink_to("/dev/full")


FAULTS: dict[str, Callable[[Any, Any], None]] = {
    "nan": not_a_number, "memory": too_much, "silence": silence, "death": death, "disk": full_disk,
}  # fmt: skip


def install(fault: Callable[[Any, Any], None], marker: Path) -> None:
    """Have it happen where Ultralytics prepares a batch."""
    from ultralytics.models.yolo.detect import DetectionTrainer

    prepare = DetectionTrainer.preprocess_batch

    def prepared(trainer: Any, batch: Any) -> Any:
        batch = prepare(trainer, batch)
        if trainer.epoch >= EPOCH and not marker.exists():
            marker.touch()
            fault(trainer, batch)
        return batch

    DetectionTrainer.preprocess_batch = prepared


if __name__ == "__main__":
    name, order_file, descriptor = sys.argv[1:]
    order = TrainingOrder.model_validate_json(Path(order_file).read_bytes())
    yolo.configure_ultralytics(order.home)
    install(FAULTS[name], order.run_dir / "happened")
    sys.exit(child.main([order_file, descriptor]))
