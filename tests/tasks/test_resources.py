from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tasks.resources import ResourceConfig, declared_job, fitting_threads, resource_words

NEEDS: dict[str, int] = {"cpus": 2, "memory_mib": 100, "devices": 0, "device_memory_mib": 0}
JOB: dict[str, Any] = {
    "resources": NEEDS,
    "priority": 70,
    "seal": {"name": "plates", "golden_pictures": 3},
    "train": {},
}


def test_the_queue_reads_what_it_needs_from_a_runs_parameters() -> None:
    job = declared_job({"job": JOB, "promotion": {}})
    assert job is not None
    assert (job.needs.cpus, job.priority, job.output, job.image) == (2, 70, "plates", None)


@pytest.mark.parametrize(
    ("case", "parameters"),
    [
        ("no job", {"config": {}}),
        ("no mapping", {"job": "plates"}),
        ("an older job", {"job": JOB | {"resources": None}}),
        ("a wrong field", {"job": JOB | {"resources": NEEDS | {"cpus": 0}}}),
        ("a misspelt field", {"job": JOB | {"resources": NEEDS | {"cpu": 1}}}),
    ],
)
def test_a_run_without_a_valid_job_declares_nothing(case: str, parameters: dict[str, Any]) -> None:
    assert declared_job(parameters) is None


@pytest.mark.parametrize(
    ("case", "changes", "device", "threads", "words"),
    [
        ("a CPU", {}, "cpu", 0, None),
        ("as many threads as cores", {}, "cpu", 2, None),
        ("a GPU", {"devices": 1}, "0", 0, None),
        ("a GPU not declared", {}, "0", 0, "devices is 0, but train.device '0' names 1"),
        ("a GPU not used", {"devices": 1}, "cpu", 0, "devices is 1, but train.device 'cpu' names 0"),
        ("a number of the host", {"devices": 1}, "3", 0, "train.device '3' must be '0'"),
        ("two GPUs", {"devices": 2}, "0", 0, "devices is 2, but a training uses one GPU at most"),
        ("more threads than cores", {}, "cpu", 3, "train.threads is 3"),
    ],
)
def test_a_training_and_what_the_job_declares_must_agree(
    case: str, changes: dict[str, int], device: str, threads: int, words: str | None
) -> None:
    found = resource_words(ResourceConfig(**(NEEDS | changes)), device, threads)
    assert found == words if words is None else words in (found or "")


@pytest.mark.parametrize(
    ("case", "threads", "cpus", "cores", "expected"),
    [
        ("Ultralytics would take fewer", 0, 2, 2, 0),
        ("just as many", 0, 7, 8, 0),
        ("more than declared", 0, 2, 8, 2),
        ("its own limit", 0, 8, 64, 0),
        ("chosen", 3, 4, 64, 3),
    ],
)
def test_a_training_takes_no_more_threads_than_declared(
    case: str, threads: int, cpus: int, cores: int, expected: int
) -> None:
    assert fitting_threads(threads, cpus, cores) == expected


@pytest.mark.parametrize("field", ["cpus", "memory_mib", "devices", "device_memory_mib"])
def test_a_wrong_number_is_refused_by_field(field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        ResourceConfig(**(NEEDS | {field: -1}))
    assert [error["loc"] for error in refused.value.errors()] == [(field,)]
