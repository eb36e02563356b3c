"""What the queue of jobs reads from Prefect's flow runs, and what it leaves on them as labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from data_contracts.errors import JobError, Problem
from deployments.jobs_plan import Grant, RunningJob, WaitingJob
from tasks.resources import declared_job

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, WorkPool

WORKER, CORES, MEMORY, DEVICES = "passline.worker", "passline.cores", "passline.memory_mib", "passline.devices"
WAITS = "passline.waits"
"""Labels of a flow run: who runs it, what it was given, and why it does not start."""


def grant_labels(worker: str, grant: Grant) -> dict[str, bool | int | float | str]:
    """What a run was given, as its labels.

    >>> grant_labels("here", Grant((0, 1), 512, (3,)))[CORES]
    '0,1'
    """
    cores, devices = (",".join(map(str, numbers)) for numbers in (grant.cores, grant.devices))
    return {WORKER: worker, CORES: cores, MEMORY: grant.memory_mib, DEVICES: devices, WAITS: ""}


def granted(labels: Mapping[str, Any], worker: str) -> Grant:
    """What the labels of a run say that `worker` gave it; nothing when it runs elsewhere."""
    if labels.get(WORKER) != worker:
        return Grant()
    cores, devices = (tuple(int(number) for number in labels[name].split(",") if number) for name in (CORES, DEVICES))
    return Grant(cores, int(labels[MEMORY]), devices)


def waiting_jobs(runs: Sequence[FlowRun]) -> list[WaitingJob]:
    """Those of the due runs that declare a job."""
    return [
        WaitingJob(run.id, run.name, run.expected_start_time, job)
        for run in runs
        if (job := declared_job(run.parameters)) is not None and run.expected_start_time is not None
    ]


def running_jobs(runs: Sequence[FlowRun], worker: str) -> list[RunningJob]:
    """Those of the runs under way that declare a job, with what `worker` gave them."""
    return [
        RunningJob(run.id, run.name, job.output, granted(run.labels, worker))
        for run in runs
        if (job := declared_job(run.parameters)) is not None
    ]


def image_problem(image: str, pool_type: str) -> Problem:
    """A process is no container: an image cannot be honoured, and must not be ignored."""
    action = "Remove it, or submit the job to a pool whose worker starts containers."
    return Problem("job.image", f"none in a pool of type {pool_type}", repr(image), action)


def job_variables(image: str | None, pool: WorkPool) -> dict[str, str]:
    """What a run hands to the worker of `pool` beside its parameters. Raises JobError for an image it cannot use."""
    if image is None:
        return {}
    if "image" not in pool.base_job_template.get("variables", {}).get("properties", {}):
        raise JobError(image_problem(image, pool.type))
    return {"image": image}
