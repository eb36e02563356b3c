"""After downtime one catch-up, not a flood: late scheduled runs give way to the latest of their deployment.

Prefect keeps every missed scheduled run and would execute them all, oldest first. Runs that a person asked for stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from data_contracts.release import now
from tasks.flow_runs import read_all

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

SCHEDULER_TAG = "auto-scheduled"
RETRY = "AwaitingRetry"
"""Name of the state of a run that waits to be taken up again; Prefect's own pages use the same."""


def by_schedule(run: FlowRun) -> bool:
    """Whether a schedule made this run. A start before the run existed cannot be anybody's "run now" either."""
    start, made = run.expected_start_time, run.created
    return (
        run.auto_scheduled or SCHEDULER_TAG in run.tags or bool(start and made and (made - start).total_seconds() > 60)
    )


def is_new(run: FlowRun) -> bool:
    """Whether a schedule made this run and it has not begun yet."""
    return by_schedule(run) and run.state_name != RETRY


def superseded(runs: Sequence[FlowRun], at: datetime) -> dict[UUID, FlowRun]:
    """Runs that give way, each with the run that catches up for it.

    `runs` are waiting runs of any deployments. Those that are due later than `at` neither give way nor supersede, nor
    do those that are to be taken up again: they have begun.
    """
    latest: dict[UUID, FlowRun] = {}
    due = [run for run in runs if is_new(run) and run.expected_start_time and run.expected_start_time <= at]
    due.sort(key=lambda run: (run.expected_start_time, str(run.id)))
    for run in due:
        if run.deployment_id is not None:
            latest[run.deployment_id] = run
    return {
        run.id: latest[run.deployment_id]
        for run in due
        if run.deployment_id is not None and latest[run.deployment_id].id != run.id
    }


def waiting_runs() -> list[FlowRun]:
    """All runs of deployments that wait for their start, oldest first."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType
    from prefect.client.schemas.sorting import FlowRunSort

    wanted = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])))
    with get_client(sync_client=True) as client:
        return read_all(client, flow_run_filter=wanted, sort=FlowRunSort.EXPECTED_START_TIME_ASC)


def cancel_backlog() -> int:
    """Cancel the late scheduled runs that a later one catches up for; returns how many."""
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelled

    give_way = superseded(waiting_runs(), now())
    with get_client(sync_client=True) as client:
        for run_id, catch_up in give_way.items():
            client.set_flow_run_state(run_id, Cancelled(message=reason(catch_up)), force=True)
    return len(give_way)


def reason(catch_up: FlowRun) -> str:
    """Why a run gave way."""
    return f"missed while nothing ran; the run due at {catch_up.expected_start_time:%Y-%m-%d %H:%M %Z} catches up"


def catch_up_words() -> str:
    """Why the flow run that asks gives way to a later one; empty when it does not.

    A worker that was started by other means than ours meets the backlog one by one; each run ends itself here.
    """
    from prefect.client.orchestration import get_client
    from prefect.runtime import flow_run

    if flow_run.id is None:
        return ""
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(str(flow_run.id)))
    if run.deployment_id is None or not by_schedule(run):
        return ""
    due = [other for other in waiting_runs() if other.deployment_id == run.deployment_id]
    later = superseded([*due, run], now()).get(run.id)
    return reason(later) if later else ""
