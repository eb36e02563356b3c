"""Ultralytics' trainer, stopping where its own would carry on in silence.

What it computes is what `yolo train` computes. Taken out are its ways around trouble: a loss that is no number goes
unnoticed in the first epoch, weights that are none are saved as zeros, a picture that cannot be read is left out of the
training, a batch that does not fit is halved without a record. Here each of them ends the process with its name, and
the process that started it decides. Ultralytics must be configured before this module is imported.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ultralytics.data.utils import load_dataset_cache_file
from ultralytics.models.yolo.detect import DetectionTrainer
from ultralytics.utils import DEFAULT_CFG

from tasks.training.checkpoints import draft_file, keep, weights_file
from tasks.training.events import EpochDone

NO_MORE_HALVING = 3
"""As many memory errors as Ultralytics answers by itself."""
NAMED = 10
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class NotFinite(Exception):
    """A loss, a fitness or weights are no numbers."""


class OtherData(Exception):
    """The trainer would train on other data than it was given."""


@dataclass(frozen=True)
class Course:
    """How this training differs from the one that its arguments describe; `epoch_done` gives the report of an epoch."""

    epochs: int
    lr_factor: float
    epoch_done: Callable[[Any], EpochDone]


class WatchedTrainer(DetectionTrainer):  # type: ignore[misc]
    """A training on one device that saves verified checkpoints below its folder."""

    last: Path

    def __init__(self, *args: Any, course: Course, **named: Any) -> None:
        self.course = course
        super().__init__(*args, **named)

    def check_resume(self, overrides: Any) -> None:
        """Resume with the epochs of now: Ultralytics keeps those of the checkpoint."""
        super().check_resume(overrides)
        self.args.epochs = self.course.epochs

    def _build_train_pipeline(self) -> None:
        super()._build_train_pipeline()
        problems = [
            words for loader in (self.train_loader, self.test_loader) for words in altered_pictures(loader.dataset)
        ]
        if problems:
            more = f" and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
            raise OtherData("; ".join(problems[:NAMED]) + more)

    def resume_training(self, ckpt: Any) -> None:
        """Take the state of the checkpoint over, then set the learning rate of this course."""
        super().resume_training(ckpt)
        set_learning_rate(self, self.course.lr_factor)

    def _model_train(self) -> None:
        super()._model_train()
        self._oom_retries = NO_MORE_HALVING

    def _handle_nan_recovery(self, epoch: int) -> bool:  # noqa: ARG002  Ultralytics calls it so
        check_finite("the fitness", [self.fitness or 0.0])
        return False

    def save_model(self) -> bool:
        """Save, verify, then vouch for it."""
        states = (self.model.state_dict(), self.ema.ema.state_dict())
        check_finite("the weights", [value for state in states for value in state.values()])
        last, draft = self.last, draft_file(self.save_dir)
        draft.parent.mkdir(exist_ok=True)
        self.last = draft
        try:
            super().save_model()
        finally:
            self.last = last
        verify(draft)
        best = bool(self.best_fitness == self.fitness)
        kept = keep(self.save_dir, draft, self.course.epoch_done(self), best=best, final=bool(self.stop))
        if kept.final:
            last.write_bytes(weights_file(self.save_dir, kept.epoch).read_bytes())
        return True


def check_finite(subject: str, values: Any) -> None:
    """Raise NotFinite when one of the values, tensors or numbers, is none."""
    if not all(bool(torch.isfinite(torch.as_tensor(value)).all()) for value in values):
        raise NotFinite(f"{subject} became NaN or infinite")


def check_loss(trainer: Any) -> None:
    """Raise NotFinite at the first batch whose loss is no number: the running mean of the epoch keeps it."""
    check_finite(f"the loss of epoch {trainer.epoch + 1}", trainer.tloss.values())


def verify(draft: Path) -> None:
    """Read a checkpoint back from the disk, whole. Raises what torch raises."""
    with draft.open("rb") as handle:
        os.fsync(handle.fileno())
    content = torch.load(draft, map_location="cpu", weights_only=False)
    check_finite("the saved weights", content["ema"].state_dict().values())


def set_learning_rate(trainer: Any, factor: float) -> None:
    """Scale the learning rate of the whole plan, the start of the warm-up included.

    The plan was made from the arguments just now; a checkpoint may have brought rates of an earlier factor.
    """
    trainer.scheduler.base_lrs = [rate * factor for rate in trainer.scheduler.base_lrs]
    for group, rate in zip(trainer.optimizer.param_groups, trainer.scheduler.base_lrs, strict=True):
        group["initial_lr"] = rate
    trainer.args.warmup_bias_lr = DEFAULT_CFG.warmup_bias_lr * factor


def altered_pictures(dataset: Any) -> Iterator[str]:
    """The pictures that a dataset left out or rewrote while it scanned them, each with what Ultralytics said of it."""
    asked = _asked_for(dataset)
    said = _said_of(dataset)
    kept = set(dataset.im_files)
    for name in asked:
        words = said.get(name, "")
        if name not in kept:
            yield f"{name}: left out{': ' + words if words else ''}"
        elif "restored and saved" in words:
            yield f"{name}: rewritten: {words}"


def _asked_for(dataset: Any) -> list[str]:
    """All pictures of a dataset. Listing them tries the speed of the disk on some drawn at random: draw no number."""
    drawn = random.getstate()
    try:
        return list(dataset.get_img_files(dataset.img_path))
    finally:
        random.setstate(drawn)


def _said_of(dataset: Any) -> dict[str, str]:
    """Ultralytics' remarks, "split: picture: words", by picture, from the table that it keeps of its scan."""
    table = Path(dataset.label_files[0]).parent.with_suffix(".cache")
    if not table.is_file():
        return {}
    remarks = [COLOUR.sub("", remark) for remark in load_dataset_cache_file(table)["msgs"]]
    parts = (remark.partition(": ")[2].partition(": ") for remark in remarks)
    return {name: words for name, _, words in parts}
