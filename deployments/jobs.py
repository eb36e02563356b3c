"""The jobs of the training pool, as the Prefect server knows them: who waits and why, how far each is, how it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from textwrap import shorten
from typing import TYPE_CHECKING, cast
from uuid import UUID

from data_contracts.release import now
from deployments.jobs_plan import in_order
from deployments.jobs_runs import WAITS, waiting_jobs
from tasks.flow_runs import read_all
from tasks.resources import DeclaredJob, declared_job
from tasks.watching.showing import PROGRESS_KEY

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

POOL = "training"
LONGEST_WORDS = 300
REASONS = 3
"""Lines of an end that are shown; a candidate may be rejected for many reasons."""
UNDER_WAY = ("PENDING", "RUNNING", "CANCELLING", "PAUSED")
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


@dataclass(frozen=True)
class JobRun:
    """A job. `words`, a line or several, say why it waits, how far it is, or how it ended; `at` is since when."""

    run_id: UUID
    name: str
    state: str
    job: DeclaredJob
    at: datetime
    words: str


@dataclass(frozen=True)
class Board:
    """All jobs: those that wait in the order in which they start, the latest end first."""

    waiting: tuple[JobRun, ...]
    running: tuple[JobRun, ...]
    finished: tuple[JobRun, ...]
    next_scheduled: datetime | None
    workers: int

    def place(self, run_id: UUID) -> str:
        """Where a job stands, in words."""
        ids = [one.run_id for one in self.waiting]
        if run_id not in ids:
            return "it has started" if any(one.run_id == run_id for one in self.running) else "it does not wait"
        runs = ", ".join(one.name for one in self.running)
        under_way = f"; under way: {runs}" if runs else ""
        nobody = "" if self.workers else f"; no worker of pool {POOL!r} is online"
        return f"number {ids.index(run_id) + 1} of {len(ids)} in the queue{under_way}{nobody}"


def read_board(client: SyncPrefectClient, ended_after: datetime | None) -> Board:
    """Ask the server. Of the jobs that ended only those after a point in time; all of them for None."""
    at, scheduled = now(), _runs(client, ("SCHEDULED",))
    under_way = _runs(client, UNDER_WAY)
    started = {run.id for run in under_way}  # between the two questions
    due = {run.id: run for run in scheduled if run.id not in started and _start(run) <= at}
    order = [one.run_id for one in in_order(waiting_jobs(list(due.values())))]
    ended = sorted(_runs(client, ENDED, ended_after), key=lambda run: run.end_time or at, reverse=True)
    return Board(
        tuple(_job_runs([due[run_id] for run_id in order], _waiting_words)),
        tuple(_job_runs(under_way, lambda run: _progress_words(client, run))),
        tuple(_job_runs(ended, _end_words)),
        min((_start(run) for run in scheduled if _start(run) > at), default=None),
        sum(one.status == "ONLINE" for one in client.read_workers_for_work_pool(POOL)),
    )


def _start(run: FlowRun) -> datetime:
    return cast("datetime", run.expected_start_time)


def _runs(client: SyncPrefectClient, states: tuple[str, ...], ended_after: datetime | None = None) -> list[FlowRun]:
    """The runs of the pool in these states that are jobs."""
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType

    types = [StateType(name) for name in states]
    wanted = filters.FlowRunFilter(
        state=filters.FlowRunFilterState(type=filters.FlowRunFilterStateType(any_=types)),
        end_time=filters.FlowRunFilterEndTime(after_=ended_after) if ended_after else None,
    )
    pool = filters.WorkPoolFilter(name=filters.WorkPoolFilterName(any_=[POOL]))
    found = read_all(client, flow_run_filter=wanted, work_pool_filter=pool)
    return [run for run in found if run.expected_start_time and declared_job(run.parameters) is not None]


def _job_runs(runs: Sequence[FlowRun], words_of: Callable[[FlowRun], str]) -> list[JobRun]:
    return [
        JobRun(run.id, run.name, run.state.name or "", job, at, words_of(run))
        for run in runs
        if run.state is not None
        and (job := declared_job(run.parameters)) is not None
        and (at := run.end_time or run.start_time or run.expected_start_time) is not None
    ]


def _waiting_words(run: FlowRun) -> str:
    return str(run.labels.get(WAITS) or "no worker has looked at it yet")


def _end_words(run: FlowRun) -> str:
    message = run.state.message if run.state is not None else None
    lines = [shorten(line, LONGEST_WORDS, placeholder=" ..") for line in (message or "").splitlines()]
    more = [f"and {len(lines) - REASONS} more: see the page of the run"] if len(lines) > REASONS else []
    return "\n".join(lines[:REASONS] + more)


def _progress_words(client: SyncPrefectClient, run: FlowRun) -> str:
    """The step that it is at, and of a training the epoch and the time that is left."""
    steps = _steps_under_way(client, run.id)
    training = _training_words(client, run.id) if "train_detector" in steps else ""
    return ": ".join(part for part in (", ".join(step.replace("_", " ") for step in steps), training) if part)


def _steps_under_way(client: SyncPrefectClient, run_id: UUID) -> list[str]:
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType

    running = filters.TaskRunFilter(
        state=filters.TaskRunFilterState(type=filters.TaskRunFilterStateType(any_=[StateType.RUNNING]))
    )
    ours = filters.FlowRunFilter(id=filters.FlowRunFilterId(any_=[run_id]))
    found = client.read_task_runs(flow_run_filter=ours, task_run_filter=running)
    return sorted(task.name.rsplit("-", 1)[0] for task in found)


def _training_words(client: SyncPrefectClient, run_id: UUID) -> str:
    from prefect.client.schemas import filters

    ours = filters.ArtifactFilter(
        flow_run_id=filters.ArtifactFilterFlowRunId(any_=[run_id]),
        key=filters.ArtifactFilterKey(any_=[PROGRESS_KEY]),
    )
    found = client.read_artifacts(artifact_filter=ours)
    return (found[0].description or "") if found else ""
