"""How far a training is and when it will be through, from what it reports. All functions are pure.

Times are seconds of one steady clock of the process that listens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

from tasks.training.events import BatchDone, EpochDone, Event, SamplesDrawn, Started

RECENT_EPOCHS = 5
"""Epochs that the estimate rests on: their median passes over one slow epoch and follows a lasting change."""


@dataclass(frozen=True)
class Step:
    """A batch of the epoch that runs, and when it was done."""

    batch: int
    at_s: float


@dataclass(frozen=True)
class Progress:
    """What is known of a training. `pid` is 0 and `epochs` 0 before it began; epochs count from 1.

    `epochs_done` holds each finished epoch once, in order; a training that goes back drops those that it repeats.
    `first` and `latest` are the first and latest batch seen of the epoch that runs.
    """

    pid: int = 0
    epochs: int = 0
    first_epoch: int = 1
    starts: int = 0
    done: int = 0
    epoch_began_s: float = 0.0
    batches: int = 0
    first: Step | None = None
    latest: Step | None = None
    epochs_done: tuple[EpochDone, ...] = ()
    samples: SamplesDrawn | None = None

    @property
    def share(self) -> float:
        """How much of all epochs is done, from 0 to 1; the epoch that runs counts by its batches."""
        if not self.epochs:
            return 0.0
        part = self.latest.batch / self.batches if self.latest and self.batches else 0.0
        return min(1.0, (self.done + part) / self.epochs)


def advanced(progress: Progress, event: Event, now_s: float) -> Progress:
    """The progress after `event`, which came at `now_s`."""
    if isinstance(event, Started):
        return _started(progress, event, now_s)
    if isinstance(event, BatchDone):
        return _stepped(progress, event, now_s)
    if isinstance(event, EpochDone):
        kept = _before(progress.epochs_done, event.epoch)
        between = replace(progress, first=None, latest=None, epoch_began_s=now_s)
        return replace(between, epochs=event.epochs, done=event.epoch, epochs_done=(*kept, event))
    return replace(progress, samples=event)


def _started(progress: Progress, event: Started, now_s: float) -> Progress:
    kept = _before(progress.epochs_done, event.first_epoch)
    samples = progress.samples if progress.samples and progress.samples.epoch < event.first_epoch else None
    return Progress(
        pid=event.pid,
        epochs=event.epochs,
        first_epoch=kept[0].epoch if kept else event.first_epoch,
        starts=progress.starts + 1,
        done=event.first_epoch - 1,
        epoch_began_s=now_s,
        epochs_done=kept,
        samples=samples,
    )


def _stepped(progress: Progress, event: BatchDone, now_s: float) -> Progress:
    step = Step(event.batch, now_s)
    again = progress.latest is not None and event.batch <= progress.latest.batch
    first = step if progress.first is None or again else progress.first
    return replace(progress, batches=event.batches, first=first, latest=step)


def _before(epochs: tuple[EpochDone, ...], epoch: int) -> tuple[EpochDone, ...]:
    return tuple(one for one in epochs if one.epoch < epoch)


def seconds_left(progress: Progress, now_s: float) -> float | None:
    """Seconds until the last planned epoch is done, None while nothing tells; a training that stops early needs less.

    Finished epochs tell best. In the first epoch its batches do, without the validation at its end.
    """
    left = progress.epochs - progress.done
    if left <= 0:
        return 0.0 if progress.epochs else None
    recent = [one.seconds for one in progress.epochs_done[-RECENT_EPOCHS:]]
    if recent:
        per_epoch = median(recent)
        return per_epoch * left - min(per_epoch, max(0.0, now_s - progress.epoch_began_s))
    return _left_by_batches(progress, left)


def _left_by_batches(progress: Progress, left: int) -> float | None:
    first, latest = progress.first, progress.latest
    if first is None or latest is None or latest.batch == first.batch:
        return None
    per_batch = (latest.at_s - first.at_s) / (latest.batch - first.batch)
    return per_batch * (progress.batches * left - latest.batch)


def duration_words(seconds: float) -> str:
    """A length of time for people.

    >>> duration_words(42.4), duration_words(600), duration_words(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def progress_words(progress: Progress, now_s: float) -> str:
    """Where the training is and what is left, in one line.

    >>> progress_words(Progress(), 0.0)
    'the training begins'
    """
    if not progress.epochs:
        return "the training begins"
    if progress.done >= progress.epochs:
        return f"all {progress.epochs} epochs are done"
    parts = [f"epoch {progress.done + 1} of {progress.epochs}"]
    if progress.latest is not None:
        parts.append(f"batch {progress.latest.batch} of {progress.batches}")
    left = seconds_left(progress, now_s)
    if left is not None:
        parts.append(f"{'about' if progress.epochs_done else 'at least'} {duration_words(left)} left")
    return ", ".join(parts)
