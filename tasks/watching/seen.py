"""What the events of a training said so far, shared by the thread that hears them and those that pass it on."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from tasks.training.events import Event, SamplesDrawn
from tasks.watching.progress import Progress, advanced, progress_words

UNSENT_SHEETS = 100
"""Sheets of sample pictures that wait for a server that is away; the oldest are given up first."""


@dataclass(frozen=True)
class View:
    """What is known at one moment.

    `unsent` are pictures that MLflow does not have yet. `over` says that the training ended, `error` with what.
    """

    progress: Progress = field(default_factory=Progress)
    unsent: tuple[SamplesDrawn, ...] = ()
    over: bool = False
    error: str = ""

    def words(self, now_s: float) -> str:
        """The state of the training in one line.

        >>> View(Progress(epochs=40, done=7), over=True, error="ValueError: x").words(0.0)
        'ended after epoch 7 of 40: ValueError: x'
        """
        done, epochs = self.progress.done, self.progress.epochs
        if not self.over:
            return progress_words(self.progress, now_s)
        if self.error:
            return f"ended after epoch {done} of {epochs}: {self.error}" if epochs else f"did not begin: {self.error}"
        return f"finished after epoch {done} of {epochs}" + (", stopped early" if done < epochs else "")

    @property
    def percent(self) -> float:
        """How much is done; all of it when the training ended well, however early."""
        return 100.0 if self.over and not self.error else round(100 * self.progress.share, 1)


class Seen:
    """The current view. `observe` takes no longer than a change in memory."""

    def __init__(self) -> None:
        self._lock, self._view = threading.Lock(), View()

    def view(self) -> View:
        """All that is known now."""
        return self._view

    def observe(self, event: Event) -> None:
        """Take an event in."""
        with self._lock:
            view = replace(self._view, progress=advanced(self._view.progress, event, time.monotonic()))
            if isinstance(event, SamplesDrawn):
                view = replace(view, unsent=(*view.unsent, event)[-UNSENT_SHEETS:])
            self._view = view

    def sent(self, sheet: SamplesDrawn) -> None:
        """A sheet is in MLflow."""
        with self._lock:
            self._view = replace(self._view, unsent=tuple(one for one in self._view.unsent if one is not sheet))

    def end(self, error: str = "") -> None:
        """The training ended, with `error` where it failed."""
        with self._lock:
            self._view = replace(self._view, over=True, error=error)
