"""Train a detector: one training, one MLflow run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from prefect import task
from pydantic import Field, field_validator

from data_contracts.base import Contract, Fraction
from data_contracts.errors import Problem, RegistryError
from serving.bundle import hash_file
from tasks import yolo
from tasks.registry import MetricLog, Registry
from tasks.run_log import current_logger
from tasks.teacher import TAG as TEACHER_TAG
from tasks.teacher import distill_arguments, find_teacher, teacher_tags
from tasks.training.checkpoints import history
from tasks.training.events import EpochDone, Event, Observer
from tasks.training.mlflow_run import RunOrigin, changed_tags, resume_tags, tracked_run
from tasks.training.recovery import (
    RecoveryConfig,
    RecoveryState,
    Trained,
    cause_before,
    check_same,
    read_state,
    write_state,
)
from tasks.training.supervise import CHILD, Ears, Plan, Supervisor
from tasks.training.tracking import EPOCH_SECONDS, EpochReporter, end_tags, hand_over, leave_facts, patiently
from tasks.watching.watch import watching
from tasks.watching.watch_config import WatchConfig

NOT_FOR_ULTRALYTICS = {"model", "teacher", "allow_download", "threads"}


class TrainConfig(Contract):
    """What is trained and how: arguments of `yolo train`, apart from model, teacher, allow_download and threads."""

    model: str = Field(
        min_length=1,
        description="Architecture (.yaml: a path, pico.yaml, or a name that Ultralytics brings) or weights (.pt).",
    )
    teacher: str | None = Field(
        min_length=1, description="Trained weights (.pt) that the model learns from beside the labels; null: none."
    )
    allow_download: bool = Field(description="Whether published weights named in `model` or `teacher` may be fetched.")
    imgsz: int = Field(
        ge=32, le=4096, multiple_of=32, description="Side of the square input, pixels; a multiple of 32."
    )
    epochs: int = Field(ge=1, le=10_000, description="Passes over the training pictures.")
    patience: int = Field(ge=0, le=10_000, description="Epochs without a better result before it stops; 0 never stops.")
    batch: int = Field(ge=1, le=1024, description="Pictures per step.")
    nbs: int = Field(ge=1, le=4096, description="Pictures per weight update: steps are accumulated up to this many.")
    optimizer: Literal["SGD", "Adam", "AdamW", "NAdam", "RAdam", "RMSProp", "MuSGD"] = Field(description="Optimiser.")
    lr0: float = Field(gt=0, le=0.1, allow_inf_nan=False, description="Learning rate after the warm-up.")
    lrf: float = Field(gt=0, le=1, allow_inf_nan=False, description="Last learning rate as a fraction of lr0.")
    momentum: float = Field(ge=0, lt=1, description="Momentum, or the first beta of Adam.")
    weight_decay: float = Field(ge=0, le=0.1, allow_inf_nan=False, description="Weight decay.")
    warmup_epochs: float = Field(ge=0, le=100, allow_inf_nan=False, description="Epochs of rising learning rate.")
    mosaic: Fraction = Field(description="Share of training pictures that are glued from four.")
    close_mosaic: int = Field(ge=0, le=10_000, description="Last epochs without mosaic.")
    fliplr: Fraction = Field(description="Share of pictures mirrored left to right.")
    flipud: Fraction = Field(description="Share of pictures mirrored top to bottom.")
    degrees: float = Field(ge=0, le=180, allow_inf_nan=False, description="Largest random rotation, degrees.")
    translate: Fraction = Field(description="Largest random shift, as a fraction of the side.")
    scale: Fraction = Field(description="Largest random change of size, as a fraction.")
    hsv_h: Fraction = Field(description="Largest random change of hue.")
    hsv_s: Fraction = Field(description="Largest random change of saturation.")
    hsv_v: Fraction = Field(description="Largest random change of brightness.")
    seed: int = Field(ge=0, le=2**31 - 1, description="Seed of everything random.")
    device: str = Field(pattern=r"^(cpu|\d+)$", description="cpu, or the number of one GPU.")
    workers: int = Field(ge=0, le=64, description="Loader processes; Ultralytics uses none on a CPU.")
    threads: int = Field(ge=0, le=256, description="CPU threads of a training on a CPU; 0: all cores but one.")
    amp: bool = Field(description="Mixed precision on a GPU; without effect on a CPU.")
    cache: Literal["none", "ram"] = Field(description="Whether decoded pictures are kept in memory.")

    @field_validator("optimizer", mode="before")
    @classmethod
    def _is_chosen(cls, optimizer: object) -> object:
        if optimizer == "auto":
            raise ValueError("'auto' chooses a learning rate of its own and ignores lr0: name an optimiser, e.g. AdamW")
        return optimizer


@dataclass(frozen=True)
class TrainedModel:
    """What a training left behind. `epochs` is how many ran; an early stop makes them fewer than planned."""

    weights: Path
    weights_sha256: str
    run_dir: Path
    mlflow_run_id: str
    epochs: int
    seconds: float
    class_names: tuple[str, ...]
    teacher_sha256: str | None = None


def train_arguments(config: TrainConfig) -> dict[str, object]:
    """The arguments of `yolo train`, apart from model, data and place."""
    arguments = {name: value for name, value in config.model_dump().items() if name not in NOT_FOR_ULTRALYTICS}
    never = config.patience or config.epochs
    return {
        **arguments,
        "cache": config.cache == "ram",
        "patience": never,
        "plots": True,
        "deterministic": True,
        "verbose": False,
    }


@dataclass(frozen=True)
class Surroundings:
    """What a training is run with besides what it computes.

    `watch` gives an observer of the run whose id it gets; `job` is kept with the run; `command` starts a process.
    """

    recovery: RecoveryConfig
    watch: Callable[[str], AbstractContextManager[Observer]] = lambda _: nullcontext(lambda _: None)
    sample_epochs: int = 0
    sample_pictures: int = 0
    job: Contract | None = None
    command: Sequence[str] = CHILD


def train(
    config: TrainConfig,
    data_yaml: Path,
    run_dir: Path,
    registry: Registry,
    origin: RunOrigin,
    home: Path,
    say: Callable[[str], None],
    around: Surroundings,
) -> TrainedModel:
    """Train in `run_dir`, or go on with the training that was begun there, and log everything to one MLflow run.

    Raises JobError when the model is missing or something else was begun there (before a run exists), TrainingError,
    RegistryError.
    """
    started = time.monotonic()
    before = read_state(run_dir)
    changes = check_same(before, config.model_dump(mode="json"), origin.dataset.dvc_hash) if before else {}
    plan, tags = _plan(config, data_yaml, run_dir, origin, home, around)
    with tracked_run(registry, origin, before.mlflow_run_id if before else None) as run_id:
        state = _taken_up(before, config) if before else _begin(config, origin, registry, run_id, run_dir)
        registry.set_run_tags(run_id, tags | changed_tags(changes))
        log = MetricLog(registry, run_id)
        trained = _trained(plan, state, around, registry, EpochReporter(log, say), say, again=before is not None)
        _check_weights(trained)
        leave_facts(run_dir, around.job)
        ended = end_tags(run_dir)
        patiently(lambda: hand_over(log, registry, run_id, run_dir, trained.weights, ended), say)
    seconds = time.monotonic() - started
    return TrainedModel(
        trained.weights,
        trained.weights_sha256,
        run_dir,
        run_id,
        trained.epochs,
        seconds,
        trained.class_names,
        tags.get(TEACHER_TAG),
    )


def _plan(
    config: TrainConfig, data_yaml: Path, run_dir: Path, origin: RunOrigin, home: Path, around: Surroundings
) -> tuple[Plan, dict[str, str]]:
    """What a training process is told, and the teacher as tags."""
    weights, may = home / "weights", config.allow_download
    if config.teacher or may:
        yolo.configure_ultralytics(home)
    model = yolo.resolve_model(config.model, weights, allow_download=may)
    teacher = find_teacher(config.teacher, data_yaml, weights, allow_download=may)
    plan = Plan(
        home=home, model=model, data_yaml=data_yaml, run_dir=run_dir, threads=config.threads,
        arguments=train_arguments(config) | distill_arguments(teacher), sample_epochs=around.sample_epochs,
        sample_count=around.sample_pictures, run_id=origin.flow_run_id or run_dir.parent.name,
    )  # fmt: skip
    return plan, teacher_tags(teacher)


def _begin(config: TrainConfig, origin: RunOrigin, registry: Registry, run_id: str, run_dir: Path) -> RecoveryState:
    registry.log_params(run_id, config.model_dump())
    run_dir.mkdir(parents=True)
    state = RecoveryState(
        mlflow_run_id=run_id, dataset_hash=origin.dataset.dvc_hash, config=config.model_dump(mode="json"),
        batch=config.batch, lr_factor=1,
    )  # fmt: skip
    write_state(run_dir, state)
    return state


def _taken_up(state: RecoveryState, config: TrainConfig) -> RecoveryState:
    """The state of an earlier process under the configuration of now: a batch that had to be halved stays so."""
    batch = state.batch if state.config["batch"] == config.batch else config.batch
    return state.with_(config=config.model_dump(mode="json"), batch=batch)


def _trained(
    plan: Plan,
    state: RecoveryState,
    around: Surroundings,
    registry: Registry,
    report: EpochReporter,
    say: Callable[[str], None],
    *,
    again: bool,
) -> Trained:
    """Train what is not trained yet, and see that each epoch is in the run once."""
    run_id = state.mlflow_run_id
    logged = registry.logged_steps(run_id, EPOCH_SECONDS) if again else set()
    if state.trained is not None:
        say(f"the training is finished: {state.trained.epochs} epochs, nothing to resume")
        for record in history(plan.run_dir):
            if record.epoch not in logged:
                report(record.done)
        return state.trained
    cause = cause_before(state) if again else None
    with around.watch(run_id) as watcher:
        for record in history(plan.run_dir):  # of earlier processes
            if record.epoch in logged:
                watcher(record.done)
        ears = Ears(observe=both(report, watcher), say=say, resumed=partial(_tag_resume, registry), heard=logged)
        return Supervisor(plan, around.recovery, ears, around.command).run(state, cause)


def _tag_resume(registry: Registry, state: RecoveryState) -> None:
    """A tracker that is away must not keep a training from going on: the tags come with the next one, or at the end."""
    with suppress(RegistryError):
        registry.set_run_tags(state.mlflow_run_id, resume_tags(state))


def both(report: EpochReporter, watcher: Observer) -> Observer:
    """One observer of the two: epochs go into the run before they are shown."""

    def observe(event: Event) -> None:
        if isinstance(event, EpochDone):
            report(event)
        watcher(event)

    return observe


def _check_weights(trained: Trained) -> None:
    """Raises TrainingError when the weights of a finished training are not what they were."""
    found = hash_file(trained.weights).sha256 if trained.weights.is_file() else "no such file"
    if found != trained.weights_sha256:
        action = "Start a new training: this one is finished and has nothing to resume."
        raise yolo.TrainingError(Problem(str(trained.weights), f"SHA-256 {trained.weights_sha256}", found, action))


@task
def train_detector(
    config: TrainConfig,
    data_yaml: Path,
    run_dir: Path,
    mlflow_url: str,
    origin: RunOrigin,
    home: Path,
    recovery: RecoveryConfig,
    watch: WatchConfig,
    job: Contract,
) -> TrainedModel:
    """Train, with the progress in the log of this run and on its page."""
    registry, say = Registry(mlflow_url), current_logger().info
    around = Surroundings(
        recovery, lambda run_id: watching(registry, run_id, watch, say), watch.sample_epochs, watch.sample_pictures, job
    )
    trained = train(config, data_yaml, run_dir, registry, origin, home, say, around)
    say(f"trained {trained.epochs} epochs in {trained.seconds:.0f} s: {asdict(trained)}")
    return trained
