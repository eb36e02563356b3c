"""Which jobs start: what is declared is kept, urgent before old, and nobody is delayed by a later one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import pytest

from deployments.jobs_plan import Device, Grant, HostResources, Plan, RunningJob, WaitingJob, in_order, plan_jobs
from tasks.resources import DeclaredJob, ResourceConfig

AT = datetime(2026, 3, 10, 2, 0, tzinfo=UTC)
HOST = HostResources((0, 1, 2, 3), 8000, (Device(0, 8000, 8000), Device(1, 16000, 16000)))
NOBODY = UUID(int=0)


def needs(**changes: int) -> ResourceConfig:
    return ResourceConfig(**({"cpus": 1, "memory_mib": 100, "devices": 0, "device_memory_mib": 0} | changes))


def waiting(name: str, age: int = 0, priority: int = 50, output: str = "", **changes: int) -> WaitingJob:
    job = DeclaredJob(needs(**changes), priority, output or name)
    return WaitingJob(uuid5(NOBODY, name), name, AT - timedelta(minutes=age), job)


def running(name: str, output: str = "", **grant: Any) -> RunningJob:
    return RunningJob(uuid5(NOBODY, name), name, output or name, Grant(**grant))


def started(plan: Plan, *jobs: WaitingJob) -> dict[str, Grant]:
    return {job.name: plan.start[job.run_id] for job in jobs if job.run_id in plan.start}


def test_the_urgent_come_first_and_of_equals_the_older() -> None:
    jobs = [waiting("young"), waiting("old", age=5), waiting("urgent", priority=90), waiting("idle", 99, priority=1)]
    assert [job.name for job in in_order(jobs)] == ["urgent", "old", "young", "idle"]


def test_jobs_that_fit_start_together_each_with_its_own_cores() -> None:
    jobs = waiting("one", cpus=2), waiting("two", cpus=2, age=1)
    plan = plan_jobs(HOST, [], jobs)
    assert started(plan, *jobs) == {"two": Grant((0, 1), 100), "one": Grant((2, 3), 100)}


def test_what_runs_keeps_what_it_was_given() -> None:
    job = waiting("next", cpus=2, devices=1)
    plan = plan_jobs(HOST, [running("first", cores=(0, 2), memory_mib=7900, devices=(0,))], [job])
    assert started(plan, job) == {"next": Grant((1, 3), 100, (1,))}


@pytest.mark.parametrize(
    ("case", "busy", "changes", "words"),
    [
        ("cores", {"cores": (0, 1, 2)}, {"cpus": 2}, "needs 2 cores, 1 of 4 are free; behind first"),
        ("memory", {"memory_mib": 7000}, {"memory_mib": 2000}, "needs 2000 MiB of memory, 1000 of 8000 are free"),
        ("devices", {"devices": (0, 1)}, {"devices": 1}, "needs 1 devices, 0 of 2 are"),
        ("a large device", {"devices": (1,)}, {"devices": 1, "device_memory_mib": 9000}, "with 9000 MiB free, 0 of 2"),
    ],
)
def test_what_is_not_free_is_waited_for_and_named(
    case: str, busy: dict[str, Any], changes: dict[str, int], words: str
) -> None:
    job = waiting("next", **changes)
    plan = plan_jobs(HOST, [running("first", **busy)], [job])
    assert words in plan.waits[job.run_id]
    assert not plan.start


def test_a_device_that_somebody_else_uses_is_waited_for() -> None:
    host = HostResources((0,), 8000, (Device(0, 8000, free_mib=500),))
    job = waiting("next", devices=1, device_memory_mib=4000)
    assert "with 4000 MiB free, 0 of 1" in plan_jobs(host, [], [job]).waits[job.run_id]
    assert started(plan_jobs(host, [], [other := waiting("small", devices=1)]), other)["small"].devices == (0,)


def test_a_waiting_job_keeps_what_is_free_of_its_needs() -> None:
    large, small = waiting("large", cpus=3, priority=60), waiting("small", cpus=1)
    plan = plan_jobs(HOST, [running("first", cores=(0, 1))], [small, large])
    assert not plan.start
    assert plan.waits[small.run_id] == "needs 1 cores, 0 of 4 are free; behind first, large"


def test_of_many_jobs_ahead_the_first_are_named() -> None:
    ahead = [waiting(name, cpus=4, priority=90 - place) for place, name in enumerate("abcde")]
    plan = plan_jobs(HOST, [running("first", cores=(0, 1, 2, 3))], ahead)
    assert plan.waits[ahead[-1].run_id].endswith("behind first, a, b and 2 others")


def test_a_later_job_may_start_with_what_nobody_ahead_needs() -> None:
    gpu, cpu = waiting("gpu", devices=1, priority=60), waiting("cpu", cpus=2)
    plan = plan_jobs(HOST, [running("first", cores=(0,), devices=(0, 1))], [gpu, cpu])
    assert started(plan, gpu, cpu) == {"cpu": Grant((2, 3), 100)}


def test_backfilling_never_delays_who_is_ahead() -> None:
    """Whatever ends first, what the job ahead lacks is still there for it."""
    ahead, later = waiting("ahead", cpus=3, priority=60), waiting("later", cpus=1)
    first = running("first", cores=(0, 1))
    plan = plan_jobs(HOST, [first], [ahead, later])
    after = plan_jobs(HOST, [running("later", cores=g.cores) for g in plan.start.values()], [ahead])
    assert ahead.run_id in after.start


def test_the_smallest_device_that_is_large_enough_is_taken() -> None:
    jobs = waiting("any", devices=1, priority=60), waiting("large", devices=1, device_memory_mib=9000)
    assert {name: grant.devices for name, grant in started(plan_jobs(HOST, [], jobs), *jobs).items()} == {
        "any": (0,),
        "large": (1,),
    }


def test_an_output_is_made_by_one_run_at_a_time_wherever_it_goes_on() -> None:
    job, twin = waiting("next", output="plates"), waiting("twin", output="plates", age=-1)
    plan = plan_jobs(HOST, [running("elsewhere", output="plates")], [job, twin])
    assert plan.waits[job.run_id] == "'elsewhere' of the same output 'plates' comes first"
    assert plan_jobs(HOST, [], [job, twin]).waits.keys() == {twin.run_id}


@pytest.mark.parametrize(
    ("case", "changes", "field"),
    [
        ("cores", {"cpus": 5}, "job.resources.cpus: expected at most 4"),
        ("memory", {"memory_mib": 8001}, "job.resources.memory_mib: expected at most 8000"),
        ("devices", {"devices": 3}, "job.resources.devices: expected at most 2"),
        ("one device", {"devices": 1, "device_memory_mib": 16001}, "device_memory_mib: expected at most 16000"),
        ("both devices", {"devices": 2, "device_memory_mib": 8001}, "device_memory_mib: expected at most 8000"),
    ],
)
def test_what_the_host_does_not_have_is_refused_and_holds_nobody_up(
    case: str, changes: dict[str, int], field: str
) -> None:
    job, other = waiting("too large", priority=90, **changes), waiting("other", cpus=4)
    plan = plan_jobs(HOST, [], [job, other])
    assert field in str(plan.refused[job.run_id][0])
    assert started(plan, job, other).keys() == {"other"}


def test_all_that_is_too_large_is_told_at_once() -> None:
    job = waiting("too large", cpus=5, memory_mib=9000, devices=3)
    assert len(plan_jobs(HOST, [], [job]).refused[job.run_id]) == 3
