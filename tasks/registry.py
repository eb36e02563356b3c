"""MLflow: the only module that knows it. Needs no more than mlflow-skinny.

A registered version holds a bundle as plain files under the run's artifact folder `bundle`, its probe set beside it
under `probe_set`, and the bundle's digest as a tag.
Aliases say what a version is for; they are read from the model itself, since a search does not list them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from data_contracts.errors import Problem, RegistryError

BUNDLE_FOLDER = "bundle"
PROBE_SET_FOLDER = "probe_set"
PROBE_FOLDER = "passline-preflight"
DIGEST_TAG = "passline.digest"
LABEL_TAG = "passline.version"
ALIASES = ("candidate", "champion", "previous")
REQUEST_LIMITS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""Seconds per request, retries, seconds between them: MLflow's own would wait minutes for a server that is gone."""
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
PARAMS_PER_CALL = 100
"""Most parameters that MLflow takes in one call."""

NOT_IN_A_NAME = re.compile(r"[^/\w.\- :]")
"""Characters that MLflow refuses in the name of a metric, brackets among them."""

RunStatus = Literal["FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True)
class RegisteredVersion:
    """One version of a registered model. `number` counts within the name; `label` is the bundle's own version."""

    name: str
    number: int
    digest: str
    label: str
    run_id: str


class Registry:
    """The tracking and registry server at `url`. Every failure is a RegistryError that names the server."""

    def __init__(self, url: str) -> None:
        self.url = url
        for name, value in {**REQUEST_LIMITS, **QUIET}.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        with self._asked("connect"):
            self._client = MlflowClient(tracking_uri=url, registry_uri=url)

    @contextmanager
    def _asked(self, wish: str) -> Iterator[None]:
        from mlflow.exceptions import MlflowException

        try:
            yield
        except (MlflowException, OSError) as error:  # requests' errors are OSErrors
            raise RegistryError(
                Problem(f"MLflow at {self.url}", wish, str(error), "Check that the server runs and is reachable.")
            ) from error

    # Runs

    def experiment_id(self, name: str) -> str:
        """Id of the experiment `name`, which is made when missing."""
        with self._asked(f"experiment {name!r}"):
            found = self._client.get_experiment_by_name(name)
            return str(found.experiment_id if found else self._client.create_experiment(name))

    def artifact_location(self, experiment: str) -> str:
        """Where the artifacts of an experiment go, as the server tells its clients."""
        with self._asked(f"experiment {experiment!r}"):
            return str(self._client.get_experiment(self.experiment_id(experiment)).artifact_location)

    def start_run(self, experiment: str, run_name: str, tags: Mapping[str, str]) -> str:
        """Open a run and return its id. The process-wide "active run" of MLflow is left alone."""
        with self._asked(f"a new run in {experiment!r}"):
            run = self._client.create_run(self.experiment_id(experiment), tags=dict(tags), run_name=run_name)
            return str(run.info.run_id)

    def reopen_run(self, run_id: str) -> None:
        """Have a run that ended, or that nobody ended, stand as running again."""
        with self._asked(f"run {run_id} running again"):
            self._client.update_run(run_id, status="RUNNING")

    def finish_run(self, run_id: str, status: RunStatus) -> None:
        """Close a run."""
        with self._asked(f"end of run {run_id}"):
            self._client.set_terminated(run_id, status=status)

    def run_status(self, run_id: str) -> str:
        """RUNNING, FINISHED, FAILED or KILLED."""
        with self._asked(f"run {run_id}"):
            return str(self._client.get_run(run_id).info.status)

    def set_run_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Add or replace tags of a run."""
        from mlflow.entities import RunTag

        with self._asked(f"tags of run {run_id}"):
            self._client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items()])

    def log_params(self, run_id: str, params: Mapping[str, object]) -> None:
        """Log parameters, in as few calls as the server allows."""
        from mlflow.entities import Param

        entries = [Param(name, str(value)) for name, value in params.items()]
        with self._asked(f"parameters of run {run_id}"):
            for start in range(0, len(entries), PARAMS_PER_CALL):
                self._client.log_batch(run_id, params=entries[start : start + PARAMS_PER_CALL])

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int = 0) -> None:
        """Log the metrics of one step in one call. Characters that MLflow refuses in names are left out."""
        self._log_steps(run_id, [(step, metrics, _now_ms())])

    def _log_steps(self, run_id: str, steps: Sequence[tuple[int, Mapping[str, float], int]]) -> None:
        from mlflow.entities import Metric

        entries = [
            Metric(NOT_IN_A_NAME.sub("", name), value, at_ms, step)
            for step, metrics, at_ms in steps
            for name, value in metrics.items()
        ]
        with self._asked(f"metrics of run {run_id}"):
            for start in range(0, len(entries), 500):
                self._client.log_batch(run_id, metrics=entries[start : start + 500])

    def logged_steps(self, run_id: str, metric: str) -> set[int]:
        """The steps at which a run has a value of `metric`."""
        with self._asked(f"{metric} of run {run_id}"):
            return {point.step for point in self._client.get_metric_history(run_id, NOT_IN_A_NAME.sub("", metric))}

    def log_file(self, run_id: str, file: Path, folder: str | None = None) -> None:
        """Upload one file as an artifact."""
        with self._asked(f"upload of {file.name} to run {run_id}"):
            self._client.log_artifact(run_id, str(file), folder)

    def log_folder(self, run_id: str, source: Path, folder: str | None = None) -> None:
        """Upload a folder's content as artifacts, below `folder` where one is given."""
        with self._asked(f"upload of {source.name} to run {run_id}"):
            self._client.log_artifacts(run_id, str(source), folder)

    def download(self, run_id: str, path: str, target: Path) -> Path:
        """Fetch an artifact, file or folder, into `target`; returns where it lies."""
        target.mkdir(parents=True, exist_ok=True)
        with self._asked(f"download of {path} of run {run_id}"):
            return Path(self._client.download_artifacts(run_id, path, str(target)))

    def send_and_fetch(self, experiment: str, file: Path, back: Path) -> Path:
        """Send a small file to where an experiment's artifacts go, fetch it into `back` and delete it there.

        No run is made for it.
        """
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        place = f"{self.artifact_location(experiment).rstrip('/')}/{PROBE_FOLDER}"
        back.mkdir(parents=True, exist_ok=True)
        with self._asked(f"a small artifact at {place}"):
            store = get_artifact_repository(place, tracking_uri=self.url)
            store.log_artifact(str(file))
            fetched = Path(store.download_artifacts(file.name, str(back)))
            store.delete_artifacts(file.name)
        return fetched

    # Versions

    def register_bundle(
        self, name: str, run_id: str, bundle: Path, digest: str, label: str, probe_set: Path | None = None
    ) -> RegisteredVersion:
        """Upload a sealed bundle and its probe set to its run and make it the next version of the model `name`.

        A bundle that is registered already is returned as it is.
        """
        known = next((version for version in self.versions(name) if version.digest == digest), None)
        if known is not None:
            return known
        if probe_set is not None:
            self.log_folder(run_id, probe_set, PROBE_SET_FOLDER)
        self.log_folder(run_id, bundle, BUNDLE_FOLDER)
        with self._asked(f"a new version of {name!r}"):
            self._ensure_model(name)
            made = self._client.create_model_version(
                name,
                source=f"runs:/{run_id}/{BUNDLE_FOLDER}",
                run_id=run_id,
                tags={DIGEST_TAG: digest, LABEL_TAG: label},
                await_creation_for=60,
            )
        return _version(made)

    def _ensure_model(self, name: str) -> None:
        if not self._client.search_registered_models(filter_string=f"name = '{name}'"):
            self._client.create_registered_model(name)

    def versions(self, name: str) -> tuple[RegisteredVersion, ...]:
        """All bundles registered under `name`, newest first; none when the name is unknown."""
        with self._asked(f"versions of {name!r}"):
            found = self._client.search_model_versions(f"name = '{name}'")
        return tuple(sorted(map(_version, found), key=lambda version: -version.number))

    def set_alias(self, name: str, alias: str, number: int) -> None:
        """Point `alias` to a version."""
        with self._asked(f"alias {alias!r} of {name!r}"):
            self._client.set_registered_model_alias(name, alias, str(number))

    def delete_alias(self, name: str, alias: str) -> None:
        """Remove `alias`; nothing happens when it is not there."""
        with self._asked(f"alias {alias!r} of {name!r}"):
            self._client.delete_registered_model_alias(name, alias)

    def get_alias(self, name: str, alias: str) -> RegisteredVersion | None:
        """The version that `alias` points to, or None.

        Raises RegistryError when it points to a version that is gone.
        """
        number = self._alias_numbers(name).get(alias)
        if number is None:
            return None
        with self._asked(f"alias {alias!r} of {name!r}, version {number}"):
            return _version(self._client.get_model_version(name, number))

    def _alias_numbers(self, name: str) -> dict[str, str]:
        """Alias to version number; empty when the model is unknown. A search would give versions without aliases."""
        from mlflow.exceptions import MlflowException

        with self._asked(f"aliases of {name!r}"):
            try:
                return {alias: str(number) for alias, number in self._client.get_registered_model(name).aliases.items()}
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                    return {}
                raise

    def champion(self, name: str) -> RegisteredVersion | None:
        """The version that serves, as the registry has it."""
        return self.get_alias(name, "champion")

    def aliases(self, name: str) -> dict[str, RegisteredVersion]:
        """What each of Passline's aliases points to; aliases that are not set are left out."""
        found = {alias: self.get_alias(name, alias) for alias in ALIASES}
        return {alias: version for alias, version in found.items() if version is not None}

    def set_version_tags(self, name: str, number: int, tags: Mapping[str, str]) -> None:
        """Add or replace tags of a version."""
        with self._asked(f"tags of {name!r} version {number}"):
            for key, value in tags.items():
                self._client.set_model_version_tag(name, str(number), key, value)

    def version_tags(self, name: str, number: int) -> dict[str, str]:
        """Tags of a version."""
        with self._asked(f"tags of {name!r} version {number}"):
            return dict(self._client.get_model_version(name, str(number)).tags)

    def delete_version(self, name: str, number: int) -> None:
        """Delete a version. Raises RegistryError while an alias points to it."""
        held = [alias for alias, version in self.aliases(name).items() if version.number == number]
        if held:
            raise RegistryError(
                Problem(
                    f"{name} version {number}",
                    "no alias on a version to delete",
                    ", ".join(held),
                    "Move the alias first.",
                )
            )
        with self._asked(f"removal of {name!r} version {number}"):
            self._client.delete_model_version(name, str(number))

    def download_bundle(self, version: RegisteredVersion, target: Path) -> Path:
        """Fetch a version's bundle below `target`; returns its folder, unverified: `open_bundle` verifies."""
        return self.download(version.run_id, BUNDLE_FOLDER, target)

    def download_probe_set(self, version: RegisteredVersion, target: Path) -> Path:
        """Fetch the probe set of a version below `target`; unverified, as above."""
        return self.download(version.run_id, PROBE_SET_FOLDER, target)

    def run_url(self, run_id: str, public_url: str | None = None) -> str:
        """The page of a run for people."""
        with self._asked(f"run {run_id}"):
            experiment = self._client.get_run(run_id).info.experiment_id
        return f"{(public_url or self.url).rstrip('/')}/#/experiments/{experiment}/runs/{run_id}"


class MetricLog:
    """Metrics per step of one run, which survive a server that is away for a while.

    What cannot be sent is kept and sent with the next step; `close` must get rid of the rest.
    """

    def __init__(self, registry: Registry, run_id: str) -> None:
        self._registry, self._run_id = registry, run_id
        self._pending: list[tuple[int, Mapping[str, float], int]] = []

    def add(self, step: int, metrics: Mapping[str, float]) -> RegistryError | None:
        """Log one step; returns the error when it has to wait."""
        self._pending.append((step, metrics, _now_ms()))
        try:
            self.close()
        except RegistryError as error:
            return error
        return None

    def close(self) -> None:
        """Send what waits. Raises RegistryError when the server does not take it."""
        if self._pending:
            self._registry._log_steps(self._run_id, self._pending)
            self._pending.clear()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _version(found: Any) -> RegisteredVersion:
    tags = dict(found.tags)
    return RegisteredVersion(
        found.name, int(found.version), tags.get(DIGEST_TAG, ""), tags.get(LABEL_TAG, ""), str(found.run_id or "")
    )
