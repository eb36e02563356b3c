"""Prefect: progress, curves and sample pictures of a training, each one artifact that changes in place."""

from __future__ import annotations

import time

from tasks.artifacts import LiveArtifact
from tasks.training.events import SamplesDrawn
from tasks.watching.page import curves_markdown, samples_markdown
from tasks.watching.seen import Seen, View

PROGRESS_KEY, CURVES_KEY, SAMPLES_KEY = "training-progress", "training-curves", "training-samples"


class Showing:
    """Made in the run that the artifacts belong to; `publish` runs in a thread of its own.

    Prefect keeps every update as an event with the whole content: pictures are parted from the small progress, and
    neither is sent more often than `spacing_s`, nor again while it is the same. Curves begin with the first epoch: a
    training that is taken up again keeps those of before until then.
    """

    def __init__(self, seen: Seen, spacing_s: float) -> None:
        self._seen, self._spacing_s = seen, spacing_s
        self._progress = LiveArtifact(PROGRESS_KEY, "progress")
        self._curves = LiveArtifact(CURVES_KEY, "markdown")
        self._samples = LiveArtifact(SAMPLES_KEY, "markdown")
        self._shown: tuple[float, str] = (-1.0, "")
        self._drawn: tuple[object, ...] = ()
        self._sheet: SamplesDrawn | None = None
        self._due_s = 0.0

    def publish(self) -> None:
        """Show what changed; at the end of the training at once."""
        view, now_s = self._seen.view(), time.monotonic()
        state = view.percent, view.words(now_s)
        if state != self._shown:
            self._progress.show(*state)
            self._shown = state
        if view.over or (now_s >= self._due_s and view.progress.epochs_done):
            self._show_curves(view, state[1])
            self._show_samples(view.progress.samples)
            self._due_s = now_s + self._spacing_s

    def _show_curves(self, view: View, words: str) -> None:
        drawn = view.progress.epochs_done, view.progress.starts, view.over
        if drawn != self._drawn:
            self._curves.show(curves_markdown(view.progress, words), "Curves of the training")
            self._drawn = drawn

    def _show_samples(self, samples: SamplesDrawn | None) -> None:
        if samples is not None and samples != self._sheet and samples.picture.is_file():
            markdown = samples_markdown(samples.epoch, samples.picture.read_bytes())
            self._samples.show(markdown, f"Sample pictures after epoch {samples.epoch}")
            self._sheet = samples
