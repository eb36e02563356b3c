"""Before hours of training: will there be a place for what it makes? All that is missing is told at once."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from prefect import task
from pydantic import Field

from data_contracts.base import Contract
from data_contracts.errors import JobError, PasslineError, Problem, raise_if_any
from tasks.model_files import find_model, missing_model
from tasks.registry import Registry
from tasks.train import TrainConfig

REMOTE_SCHEMES = ("http", "https")
LOCAL_SCHEMES = ("", "file")
MIB = 2**20


class PreflightConfig(Contract):
    """What must be there before a training starts."""

    min_free_mib: int = Field(ge=1, description="Least free disk space where runs are kept, MiB.")


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


def check_disk(folder: Path, min_free_mib: int) -> Iterator[Problem]:
    """Free space where `folder` is or will be."""
    free_mib = _free_mib(folder)
    if free_mib < min_free_mib:
        yield Problem(f"disk of {folder}", f"{min_free_mib} MiB free", f"{free_mib} MiB", "Remove old runs or bundles.")


def _free_mib(folder: Path) -> int:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    return shutil.disk_usage(there).free // MIB


def check_model(config: TrainConfig, weights_home: Path) -> Iterator[Problem]:
    """The model file is here, or may be fetched."""
    may_fetch = config.allow_download and Path(config.model).suffix == ".pt"
    if find_model(config.model, weights_home) is None and not may_fetch:
        yield missing_model(config.model, weights_home)


def check_repository(repository: str) -> Iterator[Problem]:
    """A dataset repository on this machine is a folder; one at a URL is asked when it is pinned."""
    if not urlsplit(repository).scheme and "@" not in repository and not Path(repository).is_dir():
        yield Problem("dataset.repository", "a git + DVC repository", f"{repository}: no folder", "Check the path.")


def collect(checks: list[Callable[[], Iterator[Problem]]]) -> list[Problem | str]:
    """The problems of all checks; one that cannot be made is a problem, and the others are still made."""
    found: list[Problem | str] = []
    for check in checks:
        try:
            found += check()
        except PasslineError as error:
            found += error.problems
    return found


def look_ahead(
    registry: Registry, experiment: str, repository: str, train: TrainConfig, home: Path, config: PreflightConfig
) -> PreflightFacts:
    """Raises JobError with all that is missing; leaves nothing behind."""
    raise_if_any(
        JobError,
        collect(
            [
                lambda: check_artifacts(registry, experiment),
                lambda: check_disk(home, config.min_free_mib),
                lambda: check_model(train, home / "weights"),
                lambda: check_repository(repository),
            ]
        ),
    )
    return PreflightFacts(registry.artifact_location(experiment), train.model, _free_mib(home))


@task
def preflight(
    mlflow_url: str, experiment: str, repository: str, train: TrainConfig, home: Path, config: PreflightConfig
) -> PreflightFacts:
    """Check the registry, the disk, the model and the dataset repository."""
    return look_ahead(Registry(mlflow_url), experiment, repository, train, home, config)
