"""Watch one training from the process that waits for it: Prefect shows it live, MLflow keeps what is sampled.

The training's events only change a value in memory; two threads carry it on. A server that is away or slow costs the
training nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tasks.registry import Registry
from tasks.training.events import Observer
from tasks.watching.background import Background, Say
from tasks.watching.recording import Recording
from tasks.watching.seen import Seen
from tasks.watching.showing import Showing
from tasks.watching.watch_config import WatchConfig

GOODBYE_S = 10.0
"""Longest wait for the last values to be sent once a training is over."""


@contextmanager
def watching(registry: Registry, run_id: str, config: WatchConfig, say: Say) -> Iterator[Observer]:
    """An observer for the events of a training that logs to the MLflow run `run_id`; it neither fails nor waits.

    One watch covers a training with all its restarts. What cannot be shown or recorded is told once through `say`.
    """
    seen = Seen()
    showing = Showing(seen, config.curves_every_s)
    recording = Recording(seen, registry, run_id)
    threads = [
        Background("showing the training in Prefect", showing.publish, config.progress_every_s, say),
        Background("recording the machine's load", recording.record, config.metrics_every_s, say),
    ]
    try:
        yield seen.observe
        seen.end()
    except BaseException as error:  # a cancelled flow run raises what is no Exception
        seen.end(f"{type(error).__name__}: {error}".partition("\n")[0])
        raise
    finally:
        deadline = time.monotonic() + GOODBYE_S
        for thread in threads:
            thread.close(max(0.0, deadline - time.monotonic()))
