"""Train a detector: one training, one MLflow run."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from prefect import task
from pydantic import Field, field_validator

from data_contracts.base import Contract, Fraction
from data_contracts.dataset import DatasetPin
from data_contracts.errors import JobError, Problem, RegistryError
from serving.bundle import hash_file
from tasks import yolo
from tasks.provenance import code_revision, library_versions
from tasks.registry import MetricLog, Registry
from tasks.run_log import current_logger

NOT_FOR_ULTRALYTICS = {"model", "allow_download", "threads"}
PICTURES = ("*.png", "*.jpg")
UPLOAD_WAITS_S = (5.0, 15.0, 30.0)
EPOCH_SECONDS = "seconds/epoch"


class TrainConfig(Contract):
    """What is trained and how: arguments of `yolo train`, apart from model, allow_download and threads."""

    model: str = Field(
        min_length=1,
        description="Architecture (.yaml: a path, pico.yaml, or a name that Ultralytics brings) or weights (.pt).",
    )
    allow_download: bool = Field(description="Whether published weights named in `model` may be fetched.")
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


class SmokeConfig(Contract):
    """A short training before the long one: what cannot work fails in seconds."""

    fraction: float = Field(gt=0, le=1, description="Share of the training pictures that it sees, for one epoch.")


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


@dataclass(frozen=True)
class RunOrigin:
    """What a training run is made of and for. `flow_run_id` is empty outside a flow."""

    experiment: str
    run_name: str
    dataset: DatasetPin
    flow_run_id: str = ""


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


def run_tags(origin: RunOrigin) -> dict[str, str]:
    """Where the run comes from, as tags of the MLflow run."""
    code = code_revision()
    return {
        "passline.dataset.name": origin.dataset.name,
        "passline.dataset.revision": origin.dataset.commit,
        "passline.dataset.hash": origin.dataset.dvc_hash,
        "passline.code.commit": code.commit,
        "passline.code.dirty": str(code.dirty).lower(),
        "passline.flow_run_id": origin.flow_run_id,
        **{f"passline.version.{name}": version for name, version in library_versions().items()},
    }


@contextmanager
def tracked_run(registry: Registry, origin: RunOrigin) -> Iterator[str]:
    """An MLflow run that is closed whatever happens: FINISHED, or FAILED when the block raises."""
    run_id = registry.start_run(origin.experiment, origin.run_name, run_tags(origin))
    try:
        yield run_id
    except BaseException as error:  # a cancelled flow run raises what is no Exception
        try:
            registry.finish_run(run_id, "FAILED")
        except RegistryError as unreachable:
            error.add_note(f"MLflow run {run_id} could not be closed: {unreachable}")
        raise
    registry.finish_run(run_id, "FINISHED")


def epoch_line(epoch: int, epochs: int, metrics: Mapping[str, float], seconds: float) -> str:
    """One line of progress with the time that is left.

    >>> epoch_line(3, 10, {"metrics/mAP50(B)": 0.5, "train/box_loss": 1.25}, 2.0)
    'epoch 3/10: mAP50 0.500, box loss 1.250, 2.0 s, about 14 s left'
    """
    values = (("mAP50", "metrics/mAP50(B)"), ("box loss", "train/box_loss"))
    known = [f"{word} {metrics[name]:.3f}" for word, name in values if name in metrics]
    return ", ".join(
        [
            f"epoch {epoch}/{epochs}: " + ", ".join(known),
            f"{seconds:.1f} s",
            f"about {(epochs - epoch) * seconds:.0f} s left",
        ]
    )


class EpochReporter:
    """Writes each epoch to the log and to the run, and remembers how many there were."""

    def __init__(self, log: MetricLog, say: Callable[[str], None]) -> None:
        self._log, self._say, self.epochs = log, say, 0

    def __call__(self, epoch: int, epochs: int, metrics: dict[str, float], seconds: float) -> None:
        """Report one epoch; metrics that are no numbers are left out of the run, and named in the log."""
        self.epochs = epoch
        self._say(epoch_line(epoch, epochs, metrics, seconds))
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        if len(finite) < len(metrics):
            self._say(f"epoch {epoch}: no number for {', '.join(sorted(metrics.keys() - finite.keys()))}")
        waiting = self._log.add(epoch, {**finite, EPOCH_SECONDS: seconds})
        if waiting is not None:
            self._say(f"epoch {epoch}: metrics wait for the next epoch: {waiting}")


def upload_run(registry: Registry, run_id: str, run_dir: Path, weights: Path) -> None:
    """Curves, confusion matrix, sample predictions, tables and the best weights, in one go."""
    with tempfile.TemporaryDirectory(prefix="passline-upload-") as staging:
        for folder, files in _run_files(run_dir, weights).items():
            (Path(staging) / folder).mkdir()
            for file in files:
                shutil.copyfile(file, Path(staging) / folder / file.name)
        registry.log_folder(run_id, Path(staging))


def _run_files(run_dir: Path, weights: Path) -> dict[str, list[Path]]:
    """What is kept of a training, by the artifact folder that it goes to."""
    tables = [run_dir / name for name in ("results.csv", "args.yaml")]
    return {
        "plots": sorted(path for pattern in PICTURES for path in run_dir.glob(pattern)),
        "training": [path for path in tables if path.is_file()],
        "weights": [weights],
    }


def _hand_over(log: MetricLog, registry: Registry, run_id: str, run_dir: Path, weights: Path) -> None:
    log.close()
    upload_run(registry, run_id, run_dir, weights)


def patiently(call: Callable[[], None], say: Callable[[str], None], waits_s: Sequence[float] = UPLOAD_WAITS_S) -> None:
    """Try again after each wait: hours of training must not be lost to a server that is restarting."""
    for wait_s in waits_s:
        try:
            return call()
        except RegistryError as error:
            say(f"trying again in {wait_s:g} s: {error}")
            time.sleep(wait_s)
    return call()


def train(
    config: TrainConfig,
    data_yaml: Path,
    run_dir: Path,
    registry: Registry,
    origin: RunOrigin,
    home: Path,
    say: Callable[[str], None],
) -> TrainedModel:
    """Train in `run_dir`, which must not exist, and log everything to one new MLflow run.

    Raises JobError when the model is missing (before a run exists), TrainingError, RegistryError.
    """
    if run_dir.exists():
        raise JobError(Problem("training folder", "a new folder", str(run_dir), "Choose another or remove it."))
    yolo.configure_ultralytics(home)
    model = yolo.resolve_model(config.model, home / "weights", allow_download=config.allow_download)
    started = time.monotonic()
    with tracked_run(registry, origin) as run_id:
        registry.log_params(run_id, config.model_dump())
        log = MetricLog(registry, run_id)
        report = EpochReporter(log, say)
        weights = yolo.train_yolo(model, data_yaml, run_dir, train_arguments(config), config.threads, report)
        patiently(lambda: _hand_over(log, registry, run_id, run_dir, weights), say)
        names = yolo.weights_class_names(weights)
    seconds = time.monotonic() - started
    return TrainedModel(weights, hash_file(weights).sha256, run_dir, run_id, report.epochs, seconds, names)


def smoke_train(config: TrainConfig, smoke: SmokeConfig, data_yaml: Path, run_dir: Path, home: Path) -> float:
    """One epoch on a few pictures, untracked, with nothing left behind; returns the seconds it took.

    Raises JobError when the model is missing, TrainingError when it cannot be trained on this data.
    """
    started = time.monotonic()
    yolo.configure_ultralytics(home)
    model = yolo.resolve_model(config.model, home / "weights", allow_download=config.allow_download)
    short = {"epochs": 1, "fraction": smoke.fraction, "plots": False}
    try:
        yolo.train_yolo(model, data_yaml, run_dir, train_arguments(config) | short, config.threads, lambda *_: None)
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)
    return time.monotonic() - started


@task
def smoke_run(config: TrainConfig, smoke: SmokeConfig, data_yaml: Path, run_dir: Path, home: Path) -> float:
    """Try the training out before it starts."""
    seconds = smoke_train(config, smoke, data_yaml, run_dir, home)
    current_logger().info("the smoke run took %.1f s", seconds)
    return seconds


@task
def train_detector(
    config: TrainConfig, data_yaml: Path, run_dir: Path, mlflow_url: str, origin: RunOrigin, home: Path
) -> TrainedModel:
    """Train, with the progress in the log of this run."""
    say = current_logger().info
    trained = train(config, data_yaml, run_dir, Registry(mlflow_url), origin, home, say)
    say(f"trained {trained.epochs} epochs in {trained.seconds:.0f} s: {asdict(trained)}")
    return trained
