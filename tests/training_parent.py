"""A process that watches a training, to be killed: prints the training's pid, then each epoch as it is done."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tasks.registry import Registry
from tasks.train import Surroundings, TrainConfig, train
from tasks.training.events import EpochDone, Event, Observer, Started
from tasks.training.recovery import RecoveryConfig
from training_fakes import ORIGIN


def tell(event: Event) -> None:
    """What the test waits for."""
    if isinstance(event, Started):
        print(event.pid, flush=True)
    if isinstance(event, EpochDone) and event.epoch > 1:
        print(f"epoch {event.epoch}", flush=True)


@contextmanager
def watch(_: str) -> Iterator[Observer]:
    """Nobody but the test watches."""
    yield tell


if __name__ == "__main__":
    order = json.loads(sys.argv[1])
    folder, origin = Path(order["folder"]), replace(ORIGIN, experiment="orphan", flow_run_id="orphan")
    around = Surroundings(RecoveryConfig(max_resumes=0, nan_lr_factor=0.5, start_s=600, stuck_s=300), watch)
    config, data, run_dir = TrainConfig(**order["config"]), Path(order["data"]), folder / "orphan" / "train"
    train(config, data, run_dir, Registry(order["url"]), origin, folder / "home", lambda _: None, around)
