"""The MLflow run of a training: where it comes from, how it ended, and that it went on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from data_contracts.dataset import DatasetPin
from data_contracts.errors import RegistryError
from tasks.provenance import code_revision, library_versions
from tasks.registry import Registry
from tasks.training.recovery import RecoveryState

FAILURE_TAG = "passline.failure"
LONGEST_TAG = 4000
"""Characters of a tag; MLflow takes 8000."""


@dataclass(frozen=True)
class RunOrigin:
    """What a training run is made of and for. `flow_run_id` is empty outside a flow."""

    experiment: str
    run_name: str
    dataset: DatasetPin
    flow_run_id: str = ""


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
def tracked_run(registry: Registry, origin: RunOrigin, known_id: str | None = None) -> Iterator[str]:
    """An MLflow run that is closed whatever happens: FINISHED, or FAILED when the block raises.

    A new one, or `known_id` running again.
    """
    if known_id is None:
        run_id = registry.start_run(origin.experiment, origin.run_name, run_tags(origin))
    else:
        run_id = known_id
        registry.reopen_run(run_id)
        registry.set_run_tags(run_id, {FAILURE_TAG: "none since it was taken up again"})
    try:
        yield run_id
    except BaseException as error:  # a cancelled flow run raises what is no Exception
        try:
            registry.set_run_tags(run_id, {FAILURE_TAG: f"{type(error).__name__}: {error}"[:LONGEST_TAG]})
            registry.finish_run(run_id, "FAILED")
        except RegistryError as unreachable:
            error.add_note(f"MLflow run {run_id} could not be closed: {unreachable}")
        raise
    registry.finish_run(run_id, "FINISHED")


def resume_tags(state: RecoveryState) -> dict[str, str]:
    """Where a training stands that was resumed, as tags: the run's parameters stay those that it began with."""
    asked = state.config["batch"]
    return {
        "passline.resumes": str(len(state.resumes)),
        **{
            f"passline.resume.{number}": f"epoch {one.first_epoch}: {one.cause}"[:LONGEST_TAG]
            for number, one in enumerate(state.resumes, 1)
        },
        **({"passline.batch": f"{state.batch}, asked {asked}: out of memory"} if state.batch != asked else {}),
        **({"passline.lr_factor": f"{state.lr_factor:g}"} if state.lr_factor != 1 else {}),
    }


def changed_tags(changes: Mapping[str, str]) -> dict[str, str]:
    """What a training was continued with other than before, as tags: MLflow refuses another value of a parameter."""
    return {f"passline.changed.{name}": words for name, words in changes.items()}
