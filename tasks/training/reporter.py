"""Reports from inside a training: Ultralytics' callbacks, turned into messages."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

from tasks import yolo
from tasks.training.events import BatchDone, EpochDone, SamplesDrawn, Started
from tasks.training.messages import Pulse, Send
from tasks.training.order import TrainingOrder

EFFECTIVE_FILE = "effective.json"
SAMPLES = "samples"
SPACING_S = 0.2
"""Least time between two reports from within an epoch; its last batch is always reported."""


class Reporter:
    """Sends what a trainer does. It draws no random number and changes nothing of the training."""

    def __init__(self, order: TrainingOrder, send: Send) -> None:
        self._order, self._send = order, send
        self._begun, self._spoke, self._batch = 0.0, 0.0, 0
        self._done: EpochDone | None = None
        self.epochs = 0

    def callbacks(self) -> dict[str, Callable[[Any], None]]:
        """By event of Ultralytics."""
        return {
            "on_train_start": self._start,
            "on_train_epoch_start": self._start_epoch,
            "on_train_batch_end": self._end_batch,
            "on_val_batch_end": lambda _: self._pulse(),
            "on_fit_epoch_end": self._end_epoch,
        }

    def epoch_done(self, trainer: Any) -> EpochDone:
        """The report of the epoch that is being saved."""
        seconds = time.monotonic() - self._begun
        self._done = EpochDone(trainer.epoch + 1, trainer.epochs, yolo.epoch_metrics(trainer), seconds)
        return self._done

    def _start(self, trainer: Any) -> None:
        facts = json.dumps(effective_facts(trainer), indent=2) + "\n"
        (self._order.run_dir / EFFECTIVE_FILE).write_text(facts, "utf-8")
        self._send(Started(os.getpid(), trainer.epochs, trainer.start_epoch + 1))

    def _start_epoch(self, _: Any) -> None:
        self._begun, self._batch = time.monotonic(), 0

    def _end_batch(self, trainer: Any) -> None:
        from tasks.training.trainer import check_loss

        self._batch += 1
        batches = len(trainer.train_loader)
        if self._is_time() or self._batch == batches:
            check_loss(trainer)
            self._send(BatchDone(trainer.epoch + 1, self._batch, batches))

    def _pulse(self) -> None:
        if self._is_time():
            self._send(Pulse())

    def _is_time(self) -> bool:
        now = time.monotonic()
        if now - self._spoke < SPACING_S:
            return False
        self._spoke = now
        return True

    def _end_epoch(self, trainer: Any) -> None:
        """Once for each epoch: the validation of the best weights at the end raises the event again."""
        if self._done is not None:
            self._send(self._done)
            self.epochs, self._done = self._done.epoch, None
            self._draw(trainer)

    def _draw(self, trainer: Any) -> None:
        """A sheet of sample pictures, where it is the epoch for one."""
        if self._order.sample_epochs and self.epochs % self._order.sample_epochs == 0:
            from tasks.watching.samples import draw_samples

            picture = draw_samples(trainer, self._order.run_dir / SAMPLES, self._order.sample_count)
            if picture is not None:
                self._send(SamplesDrawn(self.epochs, picture))


def effective_facts(trainer: Any) -> dict[str, Any]:
    """What a training really runs with, read from its optimiser and loaders rather than from what was asked."""
    import torch

    groups = trainer.optimizer.param_groups
    return {
        "optimizer": type(trainer.optimizer).__name__,
        "lr0": sorted({round(group["initial_lr"], 12) for group in groups}),
        "momentum": sorted({group.get("momentum", group.get("betas", (0.0,))[0]) for group in groups}),
        "weight_decay": sorted({round(group["weight_decay"], 12) for group in groups}),
        "warmup_bias_lr": trainer.args.warmup_bias_lr,
        "batch": trainer.batch_size,
        "steps_per_update": trainer.accumulate,
        "epochs": trainer.epochs,
        "first_epoch": trainer.start_epoch + 1,
        "pictures_train": len(trainer.train_loader.dataset),
        "pictures_val": len(trainer.test_loader.dataset),
        "device": str(trainer.device),
        "mixed_precision": bool(trainer.amp),
        "threads": torch.get_num_threads(),
        "loader_processes": trainer.train_loader.num_workers,
    }
