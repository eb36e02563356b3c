"""Runs that somebody wished to end and that go on: the worker ends their process itself.

Prefect listens for such wishes beside each run, and stops to for good when its server is away for some seconds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import psutil

from deployments.jobs_runs import WORKER
from tasks.flow_runs import read_all

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

GRACE = timedelta(seconds=45)
"""How long Prefect has, which does it in seconds where it works."""
TO_END_S = 30.0
"""How long a process has to end by itself, before it is killed."""
RUN_ID = "PREFECT__FLOW_RUN_ID"
"""Variable of a run's process that holds its id."""


def overdue(cancelling: Sequence[FlowRun], worker: str, at: datetime) -> list[UUID]:
    """Those of the runs of this worker that should have ended by now."""
    return [
        run.id
        for run in cancelling
        if run.labels.get(WORKER) == worker and run.state is not None and at - run.state.timestamp > GRACE
    ]


def end_overdue(client: SyncPrefectClient, worker: str, at: datetime) -> list[UUID]:
    """End their processes; returns the ids of those that had one. `attend` calls such an end cancelled."""
    from prefect.client.schemas import filters
    from prefect.client.schemas.objects import StateType

    state = filters.FlowRunFilterState(type=filters.FlowRunFilterStateType(any_=[StateType.CANCELLING]))
    found = read_all(client, flow_run_filter=filters.FlowRunFilter(state=state))
    late = set(map(str, overdue(found, worker, at)))
    ours = [(process, run_id) for process, run_id in _processes() if run_id in late]
    for process, _ in ours:
        _end(process)
    return [UUID(run_id) for _, run_id in ours]


def _processes() -> list[tuple[psutil.Process, str]]:
    """The processes that this one started for a run, with the run's id."""
    found = []
    for process in psutil.Process().children():
        try:
            run_id = process.environ().get(RUN_ID)
        except psutil.Error:  # it ended, or is not ours to look at
            continue
        if run_id:
            found.append((process, run_id))
    return found


def _end(process: psutil.Process) -> None:
    """The worker waits for its end itself: `process.wait` would take the exit status away from it."""
    deadline = time.monotonic() + TO_END_S
    with suppress(psutil.NoSuchProcess):
        process.terminate()
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.1)
        process.kill()
