"""Trainings on a real set: plain `yolo train`, and Passline's training step with the same settings."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bare_training import BareTraining
from data_contracts.dataset import DatasetPin, DatasetRef
from deployments.own_stack import own_settings, own_stack

if TYPE_CHECKING:
    from tasks.job import TrainingJob
    from tasks.train import TrainConfig
    from tasks.working_copy import WorkingCopy

BUDGET: dict[str, Any] = {
    "model": "yolov8n.yaml", "teacher": None, "imgsz": 192, "epochs": 40, "patience": 0, "batch": 16, "nbs": 64,
    "optimizer": "AdamW", "lr0": 0.002, "lrf": 0.05, "momentum": 0.937, "weight_decay": 0.0005, "warmup_epochs": 3.0,
    "mosaic": 0.5, "close_mosaic": 10, "fliplr": 0.5, "flipud": 0.0, "degrees": 0.0, "translate": 0.1, "scale": 0.5,
    "hsv_h": 0.015, "hsv_s": 0.7, "hsv_v": 0.4, "seed": 0,
}  # fmt: skip
"""From scratch, for two cores; what it leaves out of `yolo train` is at Ultralytics' defaults."""
SERVERS = frozenset({"mlflow-server", "prefect-server"})
Say = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    """Weights, and the seconds from the order to the finished training, process start and tracking included."""

    weights: Path
    seconds: float


def budget(job: TrainingJob, **changes: Any) -> TrainConfig:
    """The settings of a training, on the machine's side those of params.yaml."""
    from tasks.train import TrainConfig

    return TrainConfig(**(job.train.model_dump() | BUDGET | changes))


def train_plain(config: TrainConfig, copy: WorkingCopy, folder: Path, python: Path) -> Trained:
    """What a user of Ultralytics would do, in a process of its own."""
    from tasks.yolo import resolve_model

    model = resolve_model(config.model, folder, allow_download=False)
    with BareTraining(folder, copy.data_yaml, model, config, python) as training:
        times = training.times()
    return Trained(folder / "train" / "weights" / "best.pt", times.process)


def train_passline(config: TrainConfig, copy: WorkingCopy, folder: Path, job: TrainingJob, say: Say) -> Trained:
    """The step of `retrain`, with an MLflow server of its own."""
    from tasks.registry import Registry
    from tasks.train import Surroundings, train
    from tasks.training.mlflow_run import RunOrigin

    with own_settings() as settings, own_stack(settings, SERVERS, say):
        started = time.monotonic()
        origin = RunOrigin("real-sets", folder.name, _pin(copy))
        registry = Registry(settings.mlflow_url)
        around = Surroundings(job.recovery)
        trained = train(config, copy.data_yaml, folder / "train", registry, origin, folder / "home", say, around)
        return Trained(trained.weights, time.monotonic() - started)


def _pin(copy: WorkingCopy) -> DatasetPin:
    """These sets are measured as they lie: there is no revision to name."""
    pictures = sum(counts.pictures for counts in copy.counts.values())
    return DatasetPin(
        name="real-sets",
        ref=DatasetRef(repository=str(copy.folder)),
        commit="0" * 40,
        dvc_hash="0" * 32 + ".dir",
        file_count=pictures,
        size_bytes=0,
    )


def same_weights(one: Path, other: Path) -> bool:
    """Whether two trainings ended with exactly the same numbers. Loads torch."""
    import torch

    first, second = (torch.load(path, weights_only=False)["model"].state_dict() for path in (one, other))
    return list(first) == list(second) and all(torch.equal(first[name], second[name]) for name in first)
