"""What `passline jobs` makes of the server's flow runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, WorkPool
from prefect.states import Completed, Pending, Running, Scheduled, State

from data_contracts.errors import JobError
from data_contracts.release import now
from deployments.jobs import Board, read_board
from deployments.jobs_plan import Grant
from deployments.jobs_runs import grant_labels, granted, job_variables, running_jobs
from deployments.jobs_view import board_fields, board_text
from tasks.watching.showing import PROGRESS_KEY

MIDNIGHT = datetime(2026, 3, 10, tzinfo=UTC)


def job(priority: int = 50, output: str = "plates", **needs: int) -> dict[str, Any]:
    resources = {"cpus": 2, "memory_mib": 2048, "devices": 0, "device_memory_mib": 0} | needs
    return {"job": {"resources": resources, "priority": priority, "seal": {"name": output}}}


def run(name: str, state: State, due_s: float = -60.0, **fields: Any) -> FlowRun:
    start = now() + timedelta(seconds=due_s)
    given = {"parameters": job(), "expected_start_time": start} | fields
    return FlowRun(id=uuid4(), flow_id=uuid4(), name=name, state=state, **given)


class Server:
    """Answers as Prefect does: by state, by time of the end, page by page."""

    def __init__(self, *runs: FlowRun, workers: int = 1, steps: tuple[str, ...] = (), progress: str = "") -> None:
        self.runs, self.workers, self.steps, self.progress = runs, workers, steps, progress

    def read_flow_runs(self, flow_run_filter: Any, work_pool_filter: Any, limit: int, offset: int) -> list[FlowRun]:
        wanted, after = flow_run_filter.state.type.any_, flow_run_filter.end_time and flow_run_filter.end_time.after_
        found = [one for one in self.runs if one.state and one.state.type in wanted]
        return [one for one in found if after is None or (one.end_time and one.end_time >= after)][offset:][:limit]

    def read_workers_for_work_pool(self, _: str) -> list[Any]:
        return [SimpleNamespace(status="ONLINE")] * self.workers + [SimpleNamespace(status="OFFLINE")]

    def read_task_runs(self, **_: Any) -> list[Any]:
        return [SimpleNamespace(name=f"{step}-a1b") for step in self.steps]

    def read_artifacts(self, artifact_filter: Any) -> list[Any]:
        assert artifact_filter.key.any_ == [PROGRESS_KEY]
        return [SimpleNamespace(description=self.progress)] if self.progress else []


def board(*runs: FlowRun, after: datetime | None = None, **server: Any) -> Board:
    return read_board(Server(*runs, **server), after)  # type: ignore[arg-type]


def test_who_waits_is_listed_in_the_order_of_starting_with_the_reason() -> None:
    old = run("old", Scheduled(), -900, labels={"passline.waits": "needs 2 cores, 0 of 2 are free; behind owl"})
    young, urgent = run("young", Scheduled()), run("urgent", Scheduled(), parameters=job(priority=90))
    found = board(young, old, urgent)
    assert [one.name for one in found.waiting] == ["urgent", "old", "young"]
    assert [one.words for one in found.waiting][1:] == [
        "needs 2 cores, 0 of 2 are free; behind owl",
        "no worker has looked at it yet",
    ]


def test_what_is_due_later_and_what_is_no_job_does_not_wait() -> None:
    night = run("night", Scheduled(), 3600)
    found = board(night, run("next", Scheduled(), 7200), run("reconcile", Scheduled(), parameters={"config": {}}))
    assert found.waiting == ()
    assert found.next_scheduled == night.expected_start_time


@pytest.mark.parametrize(
    ("case", "steps", "progress", "words"),
    [
        ("training", ("train_detector",), "epoch 4 of 20, about 3 min left", "train detector: epoch 4 of 20, about 3"),
        ("training begins", ("train_detector",), "", "train detector"),
        ("later", ("evaluate_bundle",), "all 20 epochs are done", "evaluate bundle"),
        ("between", (), "", ""),
    ],
)
def test_how_far_a_run_is(case: str, steps: tuple[str, ...], progress: str, words: str) -> None:
    (found,) = board(run("owl", Running()), steps=steps, progress=progress).running
    assert found.words.startswith(words)
    assert bool(found.words) == bool(words)


def test_how_todays_jobs_ended_the_latest_first() -> None:
    ends = {
        "early": MIDNIGHT + timedelta(hours=1),
        "late": MIDNIGHT + timedelta(hours=2),
        "before": MIDNIGHT - timedelta(1),
    }
    runs = [
        run(name, Completed(name="Rejected", message=f"{name}  more {'x' * 400}"), end_time=end)
        for name, end in ends.items()
    ]
    assert [(one.name, one.state, one.words) for one in board(*runs, after=MIDNIGHT).finished] == [
        ("late", "Rejected", "late more .."),
        ("early", "Rejected", "early more .."),
    ]
    assert len(board(*runs).finished) == 3


def test_many_jobs_are_read_page_by_page() -> None:
    assert len(board(*(run(f"job {number}", Scheduled()) for number in range(205))).waiting) == 205


def test_a_job_that_starts_between_two_questions_is_listed_once() -> None:
    owl = run("owl", Scheduled())
    found = board(owl, owl.model_copy(update={"state": Pending()}))
    assert [one.name for one in (*found.waiting, *found.running)] == ["owl"]


def test_where_a_new_job_stands() -> None:
    first, second, going = run("first", Scheduled(), -90), run("second", Scheduled()), run("owl", Running())
    found = board(first, second, going)
    assert found.place(second.id) == "number 2 of 2 in the queue; under way: owl"
    assert found.place(going.id) == "it has started"
    assert found.place(uuid4()) == "it does not wait"
    assert board(first, workers=0).place(first.id).endswith("no worker of pool 'training' is online")


def test_the_text_has_two_lines_per_job_and_the_fields_have_all() -> None:
    gpu = run("gpu", Scheduled(), parameters=job(devices=1), labels={"passline.waits": "needs 1 devices, 0 of 1 are"})
    found = board(gpu, run("owl", Pending()), run("night", Scheduled(), 3600))
    lines = board_text(found).splitlines()
    assert lines[0] == "waiting (1)"
    assert lines[1].split() == ["1.", "gpu", "plates", "priority", "50", "2", "cores,", "2,048", "MiB,", "1", "GPU",
                                "Scheduled", *lines[1].split()[-2:]]  # fmt: skip
    assert lines[2].strip() == "needs 1 devices, 0 of 1 are"
    assert any(line.startswith("the next scheduled job is due") for line in lines)
    fields = json.loads(json.dumps(board_fields(found)))
    assert (fields["waiting"][0]["position"], fields["waiting"][0]["run_id"]) == (1, str(gpu.id))
    assert fields["running"][0]["needs"]["cpus"] == 2


def test_a_worker_knows_again_what_it_gave_and_takes_nothing_of_anothers() -> None:
    grant = Grant((0, 3), 512, (1,))
    runs = [
        run("mine", Running(), labels=dict(grant_labels("here", grant))),
        run("theirs", Running(), labels=dict(grant_labels("there", grant))),
        run("by hand", Running()),
    ]
    assert [one.grant for one in running_jobs(runs, "here")] == [grant, Grant(), Grant()]
    assert granted(grant_labels("here", Grant()), "here") == Grant()


def test_an_image_is_for_pools_that_start_containers() -> None:
    containers = {"variables": {"properties": {"image": {}}}}
    docker = WorkPool(name="gpus", type="docker", base_job_template=containers, default_queue_id=UUID(int=1))
    process = WorkPool(name="training", type="process", default_queue_id=UUID(int=1))
    assert job_variables("trainer:1", docker) == {"image": "trainer:1"}
    assert job_variables(None, process) == {}
    with pytest.raises(JobError, match=r"job\.image: expected none in a pool of type process, got 'trainer:1'"):
        job_variables("trainer:1", process)


def test_of_many_reasons_the_first_are_shown_each_on_its_line() -> None:
    reasons = [f"class {number}: too many are missed." for number in range(5)]
    rejected = run("done", Completed(name="Rejected", message="\n".join(reasons)), end_time=now())
    lines = [line.strip() for line in board_text(board(rejected)).splitlines()]
    shown = lines.index(reasons[0])
    assert lines[shown : shown + 4] == [*reasons[:3], "and 2 more: see the page of the run"]
