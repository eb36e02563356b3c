"""Which waiting jobs start now: by priority, then by age, and only into what is free.

A job that waits keeps what is free of its needs: a later or less urgent one may start with the rest, so nothing ever
delays a job that is ahead of it. An urgent job may keep others waiting for as long as there are urgent ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from data_contracts.errors import Problem
from tasks.resources import DeclaredJob, ResourceConfig

NAMED = 3
"""Jobs that are named of those ahead; the others are counted."""


@dataclass(frozen=True)
class Device:
    """A GPU. `free_mib` is what nobody uses at present, jobs of ours or not."""

    index: int
    memory_mib: int
    free_mib: int


@dataclass(frozen=True)
class HostResources:
    """What a host gives to jobs, or what is left of it."""

    cores: tuple[int, ...]
    memory_mib: int
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True)
class Grant:
    """What one run has for itself."""

    cores: tuple[int, ...] = ()
    memory_mib: int = 0
    devices: tuple[int, ...] = ()


@dataclass(frozen=True)
class WaitingJob:
    """A run whose time has come."""

    run_id: UUID
    name: str
    due: datetime
    job: DeclaredJob


@dataclass(frozen=True)
class RunningJob:
    """A run under way. `grant` is empty when it goes on at another host."""

    run_id: UUID
    name: str
    output: str
    grant: Grant = Grant()


@dataclass(frozen=True)
class Plan:
    """What becomes of each waiting job."""

    start: dict[UUID, Grant] = field(default_factory=dict)
    waits: dict[UUID, str] = field(default_factory=dict)
    refused: dict[UUID, tuple[Problem, ...]] = field(default_factory=dict)


def in_order(waiting: Sequence[WaitingJob]) -> list[WaitingJob]:
    """Highest priority first, then the oldest."""
    return sorted(waiting, key=lambda one: (-one.job.priority, one.due, str(one.run_id)))


def plan_jobs(host: HostResources, running: Sequence[RunningJob], waiting: Sequence[WaitingJob]) -> Plan:
    """What starts, what waits and why, and what this host can never run."""
    plan, free = Plan(), _without_grants(host, [one.grant for one in running])
    busy = {one.output: one.name for one in running}
    held_by = [one.name for one in running if one.grant != Grant()]
    for one in in_order(waiting):
        needs = one.job.needs
        if problems := tuple(too_large(needs, host)):
            plan.refused[one.run_id] = problems
            continue
        lacks = list(_lacking(needs, free, host))
        grant, free = _take(needs, free)
        if one.job.output in busy:
            plan.waits[one.run_id] = f"{busy[one.job.output]!r} of the same output {one.job.output!r} comes first"
        elif lacks:
            plan.waits[one.run_id] = "; ".join([*lacks, *_held_words(held_by)])
        else:
            plan.start[one.run_id] = grant
        busy.setdefault(one.job.output, one.name)
        held_by.append(one.name)
    return plan


def too_large(needs: ResourceConfig, host: HostResources) -> Iterator[Problem]:
    """What this host does not have even when nothing runs on it."""
    action = "Ask for less, or run the job on a larger host."
    sizes = (("cpus", needs.cpus, len(host.cores)), ("memory_mib", needs.memory_mib, host.memory_mib))
    for name, wanted, there in sizes:
        if wanted > there:
            yield Problem(f"job.resources.{name}", f"at most {there} on this host", str(wanted), action)
    if needs.devices > len(host.devices):
        yield Problem("job.resources.devices", f"at most {len(host.devices)} on this host", str(needs.devices), action)
    elif needs.devices > len(_large_enough(needs, host)):
        most = sorted((device.memory_mib for device in host.devices), reverse=True)[needs.devices - 1]
        name = "job.resources.device_memory_mib"
        yield Problem(name, f"at most {most} on this host", str(needs.device_memory_mib), action)


def _large_enough(needs: ResourceConfig, host: HostResources) -> list[Device]:
    return [device for device in host.devices if device.memory_mib >= needs.device_memory_mib]


def _lacking(needs: ResourceConfig, free: HostResources, host: HostResources) -> Iterator[str]:
    if needs.cpus > len(free.cores):
        yield f"needs {needs.cpus} cores, {len(free.cores)} of {len(host.cores)} are free"
    if needs.memory_mib > free.memory_mib:
        yield f"needs {needs.memory_mib} MiB of memory, {free.memory_mib} of {host.memory_mib} are free"
    ready = [device for device in free.devices if device.free_mib >= needs.device_memory_mib]
    if needs.devices > len(ready):
        size = f" with {needs.device_memory_mib} MiB free" if needs.device_memory_mib else ""
        yield f"needs {needs.devices} devices{size}, {len(ready)} of {len(host.devices)} are"


def _held_words(names: Sequence[str]) -> Iterator[str]:
    if names:
        others = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
        yield f"behind {', '.join(names[:NAMED])}{others}"


def _take(needs: ResourceConfig, free: HostResources) -> tuple[Grant, HostResources]:
    """As much of the needs as there is, and what is left: a job that waits keeps what it can."""
    fitting = sorted(_large_enough(needs, free), key=lambda device: (-_ready(needs, device), device.memory_mib))
    chosen = tuple(sorted(device.index for device in fitting[: needs.devices]))
    grant = Grant(free.cores[: needs.cpus], min(needs.memory_mib, free.memory_mib), chosen)
    return grant, _without_grants(free, [grant])


def _ready(needs: ResourceConfig, device: Device) -> bool:
    return device.free_mib >= needs.device_memory_mib


def _without_grants(host: HostResources, grants: Sequence[Grant]) -> HostResources:
    cores = {core for grant in grants for core in grant.cores}
    devices = {index for grant in grants for index in grant.devices}
    return HostResources(
        tuple(core for core in host.cores if core not in cores),
        max(0, host.memory_mib - sum(grant.memory_mib for grant in grants)),
        tuple(device for device in host.devices if device.index not in devices),
    )
