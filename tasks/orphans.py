"""Runs of this machine whose process is gone, with nobody left to report it: said when a worker starts.

What no worker of this machine can say any more, an automation of the Prefect server says later
(`deployments.automations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from data_contracts.release import now
from tasks.flow_runs import read_all
from tasks.run_folder import LOCK, is_alive

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

JUST_STARTED_S = 10.0
"""Seconds that a run may take from its start to the lock in its folder."""
GONE = "its process is gone, and so was the worker that would have said it"


def orphans(runs: Sequence[FlowRun], folder: Path, at: datetime) -> list[FlowRun]:
    """Those of `runs` that began on this machine, below `folder`, and that no process works on."""
    return [run for run in runs if _began_before(run, at) and _is_abandoned(folder / str(run.id))]


def _began_before(run: FlowRun, at: datetime) -> bool:
    return run.state is not None and (at - run.state.timestamp).total_seconds() > JUST_STARTED_S


def _is_abandoned(folder: Path) -> bool:
    return (folder / LOCK).is_file() and not is_alive(folder)


def give_up_orphans(folder: Path) -> list[UUID]:
    """Say of each orphan that it crashed, or that it is cancelled where somebody wished so; returns their ids."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType
    from prefect.states import Cancelled, Crashed

    under_way = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.CANCELLING])
    with get_client(sync_client=True) as client:
        found = read_all(client, flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=under_way)))
        lost = orphans(found, folder, now())
        for run in lost:
            wished = run.state is not None and run.state.is_cancelling()
            client.set_flow_run_state(run.id, Cancelled(message=GONE) if wished else Crashed(message=GONE))
    return [run.id for run in lost]
