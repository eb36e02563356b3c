"""A short training before the long one: data paths, labels, model and memory are tried out in seconds.

It sees a few pictures, spread over the whole set, at most 320 pixels wide; nothing of it is kept.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from prefect import task
from pydantic import Field

from data_contracts.base import Contract
from data_contracts.dataset import IMAGE_SUFFIXES
from data_contracts.errors import JobError, Problem, raise_if_any
from tasks import yolo
from tasks.run_log import current_logger
from tasks.teacher import distill_arguments, find_teacher
from tasks.train import TrainConfig, train_arguments
from tasks.training.recovery import RecoveryConfig, RecoveryState
from tasks.training.supervise import Ears, Plan, Supervisor


class SmokeConfig(Contract):
    """How short the short training is."""

    epochs: int = Field(ge=1, le=10, description="Epochs of the smoke run.")
    imgsz: int = Field(
        ge=32, le=1280, multiple_of=32, description="Largest side of its input, pixels; the job's where that is less."
    )
    steps: int = Field(ge=1, le=100, description="Batches per epoch; validation sees as many pictures.")
    stuck_s: float = Field(gt=0, le=3600, description="Seconds without a sign of life after which it counts as stuck.")


@dataclass(frozen=True)
class SmokeData:
    """The few pictures of a smoke run."""

    train: tuple[Path, ...]
    val: tuple[Path, ...]


def spread(pictures: Sequence[Path], count: int) -> tuple[Path, ...]:
    """At most `count` of them, evenly spread over their order.

    >>> [path.name for path in spread([Path(name) for name in "abcdef"], 3)]
    ['a', 'c', 'e']
    """
    kept = min(count, len(pictures))
    return tuple(pictures[index * len(pictures) // kept] for index in range(kept))


def choose_pictures(data_yaml: Path, count: int) -> SmokeData:
    """`count` pictures of each split. Raises JobError naming the folders that hold none."""
    content = yaml.safe_load(data_yaml.read_text("utf-8"))
    folders = {split: Path(content["path"], content[split]) for split in ("train", "val")}
    found = {split: _pictures(folder) for split, folder in folders.items()}
    raise_if_any(JobError, _empty(data_yaml, folders, found))
    return SmokeData(spread(found["train"], count), spread(found["val"], count))


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)


def _empty(data_yaml: Path, folders: dict[str, Path], found: dict[str, list[Path]]) -> Iterator[Problem]:
    for split, folder in folders.items():
        if not found[split]:
            got = "no picture in it" if folder.is_dir() else "no such folder"
            yield Problem(f"{data_yaml}: {split}", f"pictures in {folder}", got, "Mend the dataset or its splits.")


def write_smoke_data(data_yaml: Path, chosen: SmokeData, folder: Path) -> Path:
    """A data.yaml in `folder` that names the chosen pictures where they lie."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pictures in (("train", chosen.train), ("val", chosen.val)):
        (folder / f"{split}.txt").write_text("".join(f"{picture}\n" for picture in pictures), "utf-8")
    names: Any = yaml.safe_load(data_yaml.read_text("utf-8"))["names"]
    content = {"path": str(folder.absolute()), "train": "train.txt", "val": "val.txt", "names": names}
    target = folder / "data.yaml"
    target.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), "utf-8")
    return target


def smoke_arguments(config: TrainConfig, smoke: SmokeConfig) -> dict[str, object]:
    """The arguments of the job's training, shortened."""
    short = {"epochs": smoke.epochs, "imgsz": min(smoke.imgsz, config.imgsz), "plots": False}
    return train_arguments(config) | short


def smoke_train(
    config: TrainConfig, smoke: SmokeConfig, data_yaml: Path, run_dir: Path, home: Path, say: Callable[[str], None]
) -> float:
    """Train briefly in a process of its own, untracked, with nothing left behind; returns the seconds it took.

    Raises JobError when the model or the pictures are missing, TrainingError when it cannot be trained on this data.
    """
    started = time.monotonic()
    chosen = choose_pictures(data_yaml, smoke.steps * config.batch)
    shutil.rmtree(run_dir, ignore_errors=True)  # of an attempt that was killed
    try:
        plan = smoke_plan(config, smoke, write_smoke_data(data_yaml, chosen, run_dir), run_dir / "run", home)
        plan.run_dir.mkdir()
        recovery = RecoveryConfig(max_resumes=1, nan_lr_factor=0.5, start_s=smoke.stuck_s, stuck_s=smoke.stuck_s)
        ears = Ears(observe=lambda _: None, say=say, resumed=lambda _: None, heard=frozenset())
        Supervisor(plan, recovery, ears).run(
            RecoveryState(mlflow_run_id="", dataset_hash="", config={}, batch=config.batch, lr_factor=1)
        )
    except yolo.TrainingError as error:
        raise yolo.TrainingError(*map(_about_smoke, error.problems)) from error
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
    return time.monotonic() - started


def smoke_plan(config: TrainConfig, smoke: SmokeConfig, data_yaml: Path, run_dir: Path, home: Path) -> Plan:
    """What the job's training process would be told, shortened. Raises JobError when the model is missing."""
    weights, may = home / "weights", config.allow_download
    if config.teacher or may:
        yolo.configure_ultralytics(home)
    teacher = find_teacher(config.teacher, data_yaml, weights, allow_download=may)
    return Plan(
        home=home,
        model=yolo.resolve_model(config.model, weights, allow_download=may),
        data_yaml=data_yaml,
        run_dir=run_dir,
        arguments=smoke_arguments(config, smoke) | distill_arguments(teacher),
        threads=config.threads,
        run_id=run_dir.parent.parent.name,
    )


def _about_smoke(problem: Problem | str) -> Problem | str:
    return replace(problem, subject="smoke run") if isinstance(problem, Problem) else problem


@task
def smoke_run(config: TrainConfig, smoke: SmokeConfig, data_yaml: Path, run_dir: Path, home: Path) -> float:
    """Try the training out before it starts."""
    logger = current_logger()
    seconds = smoke_train(config, smoke, data_yaml, run_dir, home, logger.debug)
    logger.info("the smoke run took %.1f s", seconds)
    return seconds
