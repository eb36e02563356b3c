"""A run of `retrain` is taken up again: the same run, its folder, its MLflow run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from data_contracts.errors import JobError, OutsideSystemError, Problem
from data_contracts.release import now
from tasks.backlog import RETRY
from tasks.run_folder import is_alive

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun, State


def count_resumes(states: Sequence[State]) -> int:
    """How often a run was taken up again, by its states so far."""
    return sum(state.name == RETRY for state in states)


def was_cancelled(states: Sequence[State]) -> bool:
    """Whether somebody had asked for the end of a run before it crashed."""
    return any(one.is_cancelling() and two.is_crashed() for one, two in pairwise(_in_order(states)))


def _in_order(states: Sequence[State]) -> list[State]:
    return sorted(states, key=lambda state: state.timestamp)


def resume_problem(run: FlowRun, deployment: str, folder: Path) -> Problem | None:
    """Why `run` cannot be taken up again; None when it can. `deployment` is the name of what it is a run of."""
    subject, state = f"run {run.name}", run.state
    if deployment != "retrain":
        return Problem(subject, "a run of retrain", f"one of {deployment or 'no deployment'}", "Start it anew.")
    if state is None or not state.is_final():
        name = state.name if state else "no state"
        return Problem(subject, "a run that has ended", f"state {name}", "Wait for its end, or cancel it first.")
    if state.is_completed():
        return Problem(subject, "a run that did not complete", f"state {state.name}", "Submit its job anew.")
    if is_alive(folder):
        return Problem(f"folder {folder}", "no process at work", "one at work", "Wait for its end or end it.")
    if run.run_count and not folder.is_dir():
        return Problem(f"folder {folder}", "what the run left", "no folder", "Submit its job anew.")
    return None


def resume_run(run_id: UUID, runs: Path, why: str, wait_s: float = 0.0) -> str:
    """Take a run up again after `wait_s`; returns its name.

    Raises JobError when there is nothing to take up, OutsideSystemError when Prefect refuses.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.states import AwaitingRetry

    with get_client(sync_client=True) as client:
        try:
            run = client.read_flow_run(run_id)
        except ObjectNotFound:
            action = "Its id is the last part of the address of its page."
            raise JobError(Problem(f"run {run_id}", "a run that Prefect knows", "none", action)) from None
        name = client.read_deployment(run.deployment_id).name if run.deployment_id else ""
        problem = resume_problem(run, name, runs / str(run_id))
        if problem is not None:
            raise JobError(problem)
        again: State = AwaitingRetry(scheduled_time=now() + timedelta(seconds=wait_s), message=why)
        answer = client.set_flow_run_state(run_id, again)
        if answer.status.value != "ACCEPT":
            reason = getattr(answer.details, "reason", None) or answer.status.value
            raise OutsideSystemError(Problem(f"run {run.name}", "to be taken up again", reason, "See its page."))
        return run.name
