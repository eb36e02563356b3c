"""Bad ends that nobody attends to: the worker looks for them itself, beside the automation of the Prefect server.

The server hands its own events on in memory. What ends while it starts, or just before it dies, starts no automation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from data_contracts.release import now
from deployments.stuck_cancels import end_overdue
from tasks.alerts import ALARMING
from tasks.flow_runs import read_all

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.objects import FlowRun

ATTEND, RETRAIN = "attend", "retrain"
"""Deployments, which have the names of their flows."""
GRACE = timedelta(seconds=45)
"""How long the automation has; it takes a second where it works."""
WINDOW = timedelta(days=1)
"""How far back is looked: older ends are no news."""
EVERY_S = 30.0


def missed_ends(ended: Sequence[FlowRun], attending: Sequence[FlowRun], at: datetime) -> list[UUID]:
    """Those of the `ended` runs that ended badly and that no run of `attend` has looked at since, or is going to."""
    looked = {(run.parameters.get("flow_run_id"), run.created) for run in attending if not _broke(run)}
    return [
        run.id
        for run in ended
        if run.state is not None
        and run.state.name in ALARMING
        and GRACE <= at - run.state.timestamp <= WINDOW
        and not any(of == str(run.id) and made and made >= run.state.timestamp for of, made in looked)
    ]


def _broke(run: FlowRun) -> bool:
    return run.state is not None and (run.state.is_failed() or run.state.is_crashed())


def attend_to_missed(client: SyncPrefectClient, at: datetime) -> list[UUID]:
    """Start `attend` for each of them; returns their ids."""
    from prefect.client.schemas import filters

    after = at - WINDOW
    ended = filters.FlowRunFilter(end_time=filters.FlowRunFilterEndTime(after_=after))
    due = filters.FlowRunFilter(expected_start_time=filters.FlowRunFilterExpectedStartTime(after_=after))
    missed = missed_ends(_runs(client, RETRAIN, ended), _runs(client, ATTEND, due), at)
    if missed:
        deployment = client.read_deployment_by_name(f"{ATTEND}/{ATTEND}")
        for run_id in missed:
            client.create_flow_run_from_deployment(deployment.id, parameters={"flow_run_id": str(run_id)})
    return missed


def _runs(client: SyncPrefectClient, deployment: str, wanted: FlowRunFilter) -> list[FlowRun]:
    from prefect.client.schemas import filters

    of = filters.DeploymentFilter(name=filters.DeploymentFilterName(any_=[deployment]))
    return read_all(client, flow_run_filter=wanted, deployment_filter=of)


def keep_looking(worker: str) -> None:
    """Look for missed ends, and for cancelled runs of `worker` that go on, in a thread that ends with the process.

    A server that is away is asked again later.
    """
    threading.Thread(target=_look, args=(worker,), name="missed ends", daemon=True).start()


def _look(worker: str) -> None:
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectException

    while True:
        time.sleep(EVERY_S)
        try:
            with get_client(sync_client=True) as client:
                missed, ended = attend_to_missed(client, now()), end_overdue(client, worker, now())
        except (httpx.HTTPError, PrefectException) as error:
            print(f"whether bad ends were missed cannot be asked: {error}", flush=True)
            continue
        if missed:
            print(f"attending to {len(missed)} bad ends that the server's automation passed over", flush=True)
        if ended:
            print(f"ended {len(ended)} cancelled runs that went on", flush=True)
