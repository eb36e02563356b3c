"""What a training job declares that it needs, and what a host has to give.

Read by the job, by the worker that starts it, and by whoever shows the queue: imports nothing of the training side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from data_contracts.base import Contract, Name

ULTRALYTICS_THREADS = 8
"""Most CPU threads that Ultralytics takes by itself."""


class ResourceConfig(Contract):
    """What a job needs for itself alone. It waits until all of it is free; a host too small for it refuses it."""

    cpus: int = Field(ge=1, le=1024, description="CPU cores; the run is kept on so many.")
    memory_mib: int = Field(ge=1, le=16 * 2**20, description="Main memory at the peak, MiB.")
    devices: int = Field(ge=0, le=16, description="GPUs; 0 for a training on the CPU.")
    device_memory_mib: int = Field(ge=0, le=2**20, description="Free memory that each GPU must have, MiB.")


@dataclass(frozen=True)
class DeclaredJob:
    """What the queue knows of a job. At most one run per `output` goes on at a time."""

    needs: ResourceConfig
    priority: int
    output: str
    image: str | None = None


class _Seal(Contract, extra="ignore"):
    name: Name


class _Job(Contract, extra="ignore"):
    resources: ResourceConfig
    priority: int
    seal: _Seal
    image: str | None = None


def declared_job(parameters: Mapping[str, Any]) -> DeclaredJob | None:
    """The job among the parameters of a flow run; None for a run that declares none.

    A block that is no valid job gives None too: such a run ends by itself, naming the wrong field.
    """
    try:
        job = _Job.model_validate(parameters.get("job"))
    except ValidationError:
        return None
    return DeclaredJob(job.resources, job.priority, job.seal.name, job.image)


def resource_words(needs: ResourceConfig, device: str, threads: int) -> str | None:
    """Why a training on `device` with so many `threads` does not go with what the job declares; None when it does."""
    if needs.devices > 1:
        return f"devices is {needs.devices}, but a training uses one GPU at most: ask for 1, or for 0 and a CPU"
    numbers = [] if device == "cpu" else device.split(",")
    if len(numbers) != needs.devices:
        return f"devices is {needs.devices}, but train.device {device!r} names {len(numbers)}: make them agree"
    wanted = [str(number) for number in range(needs.devices)]
    if numbers != wanted:
        return f"a job counts its own devices from 0: train.device {device!r} must be {','.join(wanted)!r}"
    if threads > needs.cpus:
        return f"cpus is {needs.cpus}, but train.threads is {threads}: declare as many as the training uses"
    return None


def fitting_threads(threads: int, cpus: int, cores: int) -> int:
    """CPU threads of a training that declares `cpus` on a machine with `cores`; 0 leaves Ultralytics' own choice.

    >>> fitting_threads(0, 2, cores=16), fitting_threads(0, 2, cores=2), fitting_threads(1, 2, cores=16)
    (2, 0, 1)
    """
    own_choice = min(ULTRALYTICS_THREADS, max(1, cores - 1))
    return threads or (cpus if own_choice > cpus else 0)
