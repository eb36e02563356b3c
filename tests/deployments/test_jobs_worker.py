"""The worker's step before Prefect's own: what it holds back, tells, refuses and remembers. The server is a fake."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, WorkerStatus
from prefect.states import Running, Scheduled, State

from deployments.jobs_plan import Grant, HostResources, RunningJob
from deployments.jobs_runs import WAITS, grant_labels, granted
from deployments.jobs_worker import JobsWorker, run_environment

AT, LATER = datetime(2026, 3, 10, tzinfo=UTC), datetime(2026, 3, 11, tzinfo=UTC)
HOST = HostResources((0, 1), 4000)


def run(name: str, cpus: int = 2, state: State | None = None, image: str | None = None, **fields: Any) -> FlowRun:
    resources = {"cpus": cpus, "memory_mib": 100, "devices": 0, "device_memory_mib": 0}
    job = {"resources": resources, "priority": 50, "seal": {"name": name}, "image": image}
    given = {"parameters": {"job": job}, "expected_start_time": AT, "state": state or Scheduled()} | fields
    return FlowRun(id=uuid4(), flow_id=uuid4(), name=name, **given)


class Server:
    """Runs under way, the other workers of the pool, and what was written."""

    def __init__(self, *under_way: FlowRun, fellows: tuple[WorkerStatus, ...] = ()) -> None:
        self.under_way, self.fellows = under_way, fellows
        self.labels: dict[UUID, dict[str, Any]] = {}
        self.states: dict[UUID, State] = {}

    async def read_flow_runs(self, limit: int, offset: int, **_: Any) -> list[FlowRun]:
        return list(self.under_way[offset : offset + limit])

    async def update_flow_run_labels(self, run_id: UUID, labels: dict[str, Any]) -> None:
        self.labels[run_id] = labels

    async def set_flow_run_state(self, run_id: UUID, state: State, force: bool) -> None:
        self.states[run_id] = state

    async def read_workers_for_work_pool(self, _: str) -> list[Any]:
        own = SimpleNamespace(name="here", status=WorkerStatus.ONLINE)
        return [own, *(SimpleNamespace(name="there", status=status) for status in self.fellows)]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> JobsWorker:
    """Logs of its runs go nowhere: Prefect's would start a server."""
    monkeypatch.setattr(JobsWorker, "get_flow_run_logger", lambda *_: logging.getLogger("of a run"))
    return JobsWorker("training", name="here", resources=lambda: HOST)


def held_back(worker: JobsWorker, server: Server, *due: FlowRun) -> set[UUID]:
    worker._client = server  # type: ignore[assignment]
    return asyncio.run(worker._hold_back(list(due)))


def test_what_starts_has_its_share_in_its_labels(worker: JobsWorker) -> None:
    first, second, server = run("first"), run("second", expected_start_time=LATER), Server()
    assert held_back(worker, server, first, second) == {second.id}
    assert granted(server.labels[first.id], "here") == Grant((0, 1), 100)
    assert "behind first" in server.labels[second.id][WAITS]


def test_runs_that_declare_nothing_are_not_asked_about(worker: JobsWorker) -> None:
    control = run("control", parameters={"config": {}})
    assert held_back(worker, Server(run("busy", state=Running())), control) == set()


def test_what_is_being_submitted_counts_although_the_server_does_not_show_it_yet(worker: JobsWorker) -> None:
    first, second, server = run("first"), run("second"), Server()
    held_back(worker, server, first)
    worker._submitting_flow_run_ids.add(first.id)
    assert held_back(worker, server, first, second) == {second.id}
    worker._submitting_flow_run_ids.clear()
    assert held_back(worker, server, second) == set(), "a submission that came to nothing gives its share back"


def test_a_restarted_worker_counts_what_goes_on_without_it(worker: JobsWorker) -> None:
    mine = run("mine", state=Running(), labels=dict(grant_labels("here", Grant((0, 1), 100))))
    theirs = run("theirs", state=Running(), labels=dict(grant_labels("there", Grant((0, 1), 100))))
    due = run("due", cpus=1)
    assert held_back(worker, Server(theirs), due) == set()
    assert held_back(worker, Server(mine), due) == {due.id}


def test_a_run_that_has_just_started_is_not_started_again(worker: JobsWorker) -> None:
    stale = run("stale")
    server = Server(stale.model_copy(update={"state": Running()}))
    assert stale.id in held_back(worker, server, stale)
    assert server.labels == {}


def test_why_it_waits_is_told_once(worker: JobsWorker) -> None:
    busy = run("busy", state=Running(), labels=dict(grant_labels("here", Grant((0, 1), 100))))
    due, server = run("due"), Server(busy)
    held_back(worker, server, due)
    told = due.model_copy(update={"labels": server.labels.pop(due.id)})
    held_back(worker, server, told)
    assert server.labels == {}


@pytest.mark.parametrize(
    ("case", "due", "words"),
    [
        ("too large", run("large", cpus=3), "job.resources.cpus: expected at most 2 on this host, got 3"),
        ("a container", run("boxed", image="trainer:1"), "job.image: expected none in a pool of type process"),
    ],
)
def test_what_can_never_start_is_refused(case: str, due: FlowRun, words: str, worker: JobsWorker) -> None:
    server = Server(fellows=(WorkerStatus.OFFLINE,))
    assert held_back(worker, server, due) == {due.id}
    assert (server.states[due.id].name, server.states[due.id].is_failed()) == ("Refused", True)
    assert words in str(server.states[due.id].message)


def test_what_is_too_large_here_is_left_to_another_worker_that_is_there(worker: JobsWorker) -> None:
    due, server = run("large", cpus=3), Server(fellows=(WorkerStatus.ONLINE,))
    assert held_back(worker, server, due) == {due.id}
    assert server.states == {}
    assert "too large for here" in server.labels[due.id][WAITS]
    held_back(worker, server, boxed := run("boxed", image="trainer:1"))
    assert server.states.keys() == {boxed.id}


def test_a_run_sees_its_own_devices_only() -> None:
    assert run_environment(Grant(devices=(1, 3)))["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert run_environment(Grant())["CUDA_VISIBLE_DEVICES"] == ""


def test_the_share_of_a_run_is_forgotten_when_it_is_over(worker: JobsWorker) -> None:
    worker._starting[uuid4()] = RunningJob(uuid4(), "over", "plates", Grant((0, 1), 100))
    assert held_back(worker, Server(), due := run("due")) == set()
    assert list(worker._starting) == [due.id]
