"""Before hours of training: will there be a place for what it makes? All that is missing is told at once."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from prefect import task
from pydantic import Field

from data_contracts.base import Contract
from data_contracts.dataset import DatasetRef
from data_contracts.errors import JobError, PasslineError, Problem, raise_if_any
from tasks.dataset_ahead import look_at_source
from tasks.devices import check_devices
from tasks.model_files import find_model, missing_model
from tasks.provenance import CodeRevision, code_revision
from tasks.registry import Registry
from tasks.resources import ResourceConfig
from tasks.run_log import current_logger
from tasks.teacher import check_teacher
from tasks.train import TrainConfig

REMOTE_SCHEMES = ("http", "https")
LOCAL_SCHEMES = ("", "file")
MIB = 2**20
Check = Callable[[], Iterable[Problem | str]]


class PreflightConfig(Contract):
    """What must be there before a training starts."""

    limit_s: float = Field(gt=0, le=60, allow_inf_nan=False, description="Longest wait for what is asked, seconds.")
    min_free_mib: int = Field(ge=1, description="Least free disk space where runs are kept, MiB.")
    data_copies: float = Field(
        ge=0, le=20, allow_inf_nan=False, description="Free disk space beside that, in sizes of the dataset."
    )


@dataclass(frozen=True)
class Ahead:
    """What a run is going to need. `dataset` has its repository as a path or URL."""

    experiment: str
    dataset: DatasetRef
    dataset_name: str
    train: TrainConfig
    resources: ResourceConfig
    code_revision: str | None
    home: Path
    pinned: Path


@dataclass(frozen=True)
class PreflightFacts:
    """What was looked at and found in order."""

    artifact_location: str
    model: str
    free_mib: int


def is_local_location(location: str) -> bool:
    """Whether an artifact location is a folder of whoever reads it.

    >>> is_local_location("/srv/mlruns/1"), is_local_location("mlflow-artifacts:/1")
    (True, False)
    """
    return urlsplit(location).scheme in LOCAL_SCHEMES


def check_location(tracking_url: str, location: str) -> Iterator[Problem]:
    """A client takes a folder literally: behind an http address it would be a folder of the wrong machine."""
    if urlsplit(tracking_url).scheme in REMOTE_SCHEMES and is_local_location(location):
        yield Problem(
            f"artifact location of the experiment at {tracking_url}",
            "a location that the server serves, such as mlflow-artifacts:/",
            location,
            "Start the server with --serve-artifacts and --artifacts-destination, and use a new experiment name.",
        )


def check_artifacts(registry: Registry, experiment: str) -> Iterator[Problem]:
    """Write, read and delete a small artifact through the server."""
    location = registry.artifact_location(experiment)
    problems = list(check_location(registry.url, location))
    yield from problems
    if not problems:
        yield from _round_trip(registry, experiment)


def _round_trip(registry: Registry, experiment: str) -> Iterator[Problem]:
    sent = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / f"{sent}.txt"
        probe.write_text(sent, encoding="utf-8")
        got = registry.send_and_fetch(experiment, probe, Path(folder) / "back").read_text("utf-8")
    if got != sent:
        yield Problem(f"artifact sent to {registry.url}", sent, got, "Check the artifact store of the server.")


def check_disk(folder: Path, wanted_mib: int) -> Iterator[Problem]:
    """Free space where `folder` is or will be."""
    free_mib = _free_mib(folder)
    if free_mib < wanted_mib:
        yield Problem(f"disk of {folder}", f"{wanted_mib} MiB free", f"{free_mib} MiB", "Remove old runs or bundles.")


def _free_mib(folder: Path) -> int:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    return shutil.disk_usage(there).free // MIB


def check_model(config: TrainConfig, weights_home: Path) -> Iterator[Problem]:
    """The model file is here, or may be fetched."""
    may_fetch = config.allow_download and Path(config.model).suffix == ".pt"
    if find_model(config.model, weights_home) is None and not may_fetch:
        yield missing_model(config.model, weights_home)


def check_code(wanted: str | None, installed: CodeRevision) -> Iterator[Problem]:
    """The code that runs is the commit that the job asks for, with nothing altered."""
    if wanted is None:
        return
    action = "Check that commit out where the worker runs, or leave code_revision empty."
    if not installed.commit.startswith(wanted):
        yield Problem("job.code_revision", wanted, installed.commit, action)
    elif installed.dirty:
        yield Problem("job.code_revision", wanted, f"{installed.commit} with uncommitted changes", action)


def collect(checks: Mapping[str, Check], limit_s: float) -> list[Problem | str]:
    """The problems of all checks, which are made side by side, in the order given.

    A check that cannot be made is a problem, and so is one without an answer in time.
    """
    outcomes: dict[str, list[Problem | str] | Exception] = {}
    threads = [threading.Thread(target=_make, args=(name, checks[name], outcomes), daemon=True) for name in checks]
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    found: list[Problem | str] = []
    for name in checks:
        outcome = outcomes.get(name, [_no_answer(name, limit_s)])
        if isinstance(outcome, Exception):
            raise outcome
        found += outcome
    return found


def _make(name: str, check: Check, outcomes: dict[str, list[Problem | str] | Exception]) -> None:
    try:
        outcomes[name] = list(check())
    except PasslineError as error:
        outcomes[name] = list(error.problems)
    except Exception as error:  # noqa: BLE001  told by the thread that waits
        outcomes[name] = error


def _no_answer(name: str, limit_s: float) -> Problem:
    action = "Check that it runs and that this machine reaches it."
    return Problem(name, f"an answer within {limit_s:g} s", "none", action)


def look_ahead(registry: Registry, ahead: Ahead, config: PreflightConfig) -> PreflightFacts:
    """Raises JobError with all that is missing; leaves nothing behind."""
    train, weights = ahead.train, ahead.home / "weights"
    checks: dict[str, Check] = {
        f"MLflow at {registry.url}": lambda: check_artifacts(registry, ahead.experiment),
        "dataset": lambda: _check_data(ahead, config),
        "train.model": lambda: check_model(train, weights),
        "train.teacher": lambda: check_teacher(train.teacher, weights, allow_download=train.allow_download),
        "resources.devices": lambda: check_devices(ahead.resources),
        "code_revision": lambda: check_code(ahead.code_revision, code_revision()),
    }
    raise_if_any(JobError, collect(checks, config.limit_s))
    return PreflightFacts(registry.artifact_location(ahead.experiment), train.model, _free_mib(ahead.home))


def _check_data(ahead: Ahead, config: PreflightConfig) -> Iterator[Problem | str]:
    """The source, and room for what is made of it."""
    source = look_at_source(ahead.dataset, ahead.dataset_name, ahead.pinned)
    yield from source.problems
    yield from check_disk(ahead.home, config.min_free_mib + round(config.data_copies * source.size_bytes / MIB))


@task
def preflight(mlflow_url: str, ahead: Ahead, config: PreflightConfig) -> PreflightFacts:
    """Check registry, data remote, disk, model, teacher, devices and code."""
    started = time.monotonic()
    facts = look_ahead(Registry(mlflow_url), ahead, config)
    current_logger().info("all that the run needs is there (%.1f s): %s", time.monotonic() - started, facts)
    return facts
