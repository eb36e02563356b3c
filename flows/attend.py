"""Outcome: a job that did not end well is closed, told of and, where it may, taken up again.

Runs on pool `training`, queue `control`, called by an automation of Prefect (`deployments.automations`).
"""

from __future__ import annotations

from uuid import UUID

from prefect import State, flow
from prefect.states import Completed

from tasks.alerts import AttendConfig, goes_on
from tasks.attending import close_open_ends, look_at, take_up, tell


@flow(name="attend", description=__doc__)
def attend(flow_run_id: UUID, config: AttendConfig) -> State:
    """Attend to one run of `retrain`."""
    ended = look_at(flow_run_id)
    if ended is None:
        return Completed(message="nothing to attend to")
    close_open_ends(ended)
    refusal = take_up(ended, config) if goes_on(ended, config) else ""
    return Completed(message=tell(ended, config, refusal).text)
