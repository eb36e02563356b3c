"""Trains once watched, in a flow with a server of its own, and once with plain Ultralytics; writes what was left.

Run as a program of its own: Ultralytics must be configured before it is imported, and Prefect pointed at its server.
Arguments: working folder, and the MLflow URL; without one it does the plain training. That has a process to itself,
because Prefect's threads draw from the random numbers that the trainer augments with.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.runtime import flow_run

from builders import write_mini_dataset
from tasks import yolo
from tasks.registry import Registry
from tasks.train import Surroundings, TrainConfig, TrainedModel, train, train_arguments
from tasks.training.recovery import RecoveryConfig
from tasks.watching.watch import watching
from tasks.watching.watch_config import WatchConfig
from training_driver import bare_training, same_weights
from training_fakes import ORIGIN, TRAIN

WATCH = WatchConfig(progress_every_s=1, curves_every_s=1, sample_epochs=2, sample_pictures=4, metrics_every_s=1)
RECOVERY = RecoveryConfig(max_resumes=0, nan_lr_factor=0.5, start_s=300, stuck_s=120)
CONFIG = TrainConfig(**(TRAIN | {"epochs": 4, "mosaic": 0.5}))
SAID: list[str] = []


@task
def train_watched(folder: Path, data_yaml: Path, url: str) -> TrainedModel:
    """One training, as the flow `retrain` runs it."""
    registry = Registry(url)
    around = Surroundings(
        RECOVERY,
        partial(watching, registry, config=WATCH, say=SAID.append),
        sample_epochs=WATCH.sample_epochs,
        sample_pictures=WATCH.sample_pictures,
    )
    return train(CONFIG, data_yaml, folder / "train", registry, ORIGIN, folder / "home", SAID.append, around)


@flow
def watched(folder: Path, data_yaml: Path, url: str) -> tuple[TrainedModel, list[dict[str, Any]]]:
    """The training and the artifacts that this run has after it."""
    trained = train_watched(folder, data_yaml, url)
    ours = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run.get_id()]))
    with get_client(sync_client=True) as client:
        left = [artifact.model_dump(mode="json") for artifact in client.read_artifacts(artifact_filter=ours)]
    return trained, left


def plain(folder: Path) -> None:
    """What a user of Ultralytics would do."""
    yolo.configure_ultralytics(folder / "home")
    bare_training(CONFIG, folder / "dataset" / "data.yaml", folder / "bare", train_arguments(CONFIG))


def main(folder: Path, url: str) -> dict[str, Any]:
    """Both trainings and what they left."""
    write_mini_dataset(folder / "dataset", counts={"train": 16, "val": 10})
    data_yaml = folder / "dataset" / "data.yaml"
    data_yaml.write_text(yaml.safe_dump(yaml.safe_load(data_yaml.read_text()) | {"path": str(data_yaml.parent)}))
    trained, left = watched(folder, data_yaml, url)
    subprocess.run([sys.executable, __file__, str(folder)], check=True)
    return {
        "artifacts": left,
        "run": trained.mlflow_run_id,
        "said": SAID,
        "same_weights": same_weights(trained.weights, folder / "bare" / "weights" / "best.pt"),
        "sheets": sorted(path.name for path in (folder / "train").rglob("epoch-*.jpg")),
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if len(sys.argv) == 2:
        plain(place)
    else:
        (place / "report.json").write_text(json.dumps(main(place, sys.argv[2])))
