"""Steps of `attend`: see what a run left, close what it left open, take it up again, tell people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from prefect import get_run_logger, task

from data_contracts.errors import JobError, PasslineError, RegistryError
from tasks.alerts import ALARMING, ALERT_EVENT, Alert, AttendConfig, EndedRun, compose_alert
from tasks.registry import Registry
from tasks.resuming import count_resumes, resume_run, was_cancelled
from tasks.run_folder import TRAINING, is_alive
from tasks.settings import load_site_settings
from tasks.training.checkpoints import history
from tasks.training.recovery import read_state
from tasks.training.tracking import patiently

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

STILL_ALIVE = "its process lives: only its signs of life were missing"


@task(name="see what the run left", retries=3, retry_delay_seconds=5)
def look_at(run_id: UUID) -> EndedRun | None:
    """What is known of the run; None when there is nothing to attend to, because it goes on or ended well.

    A run that was taken for dead while its process works on this machine is said to run again, one whose end somebody
    had asked for to be cancelled.
    """
    from prefect.client.orchestration import get_client

    folder = load_site_settings().runs / str(run_id)
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(run_id)
        if run.state is None or run.state.name not in ALARMING:
            return None
        if is_alive(folder):
            _say_it_runs(client, run)
            return None
        states = client.read_flow_run_states(run_id)
        if was_cancelled(states):
            _say_it_is_cancelled(client, run)
            return None
    resumes = count_resumes(states)
    return ended_run(run, resumes, folder / TRAINING)


def ended_run(run: FlowRun, resumes: int, training: Path) -> EndedRun:
    """The facts of a run that ended, with how far the training in `training` came."""
    last_epoch, mlflow_run_id = training_left(training)
    state, message = (run.state.name, run.state.message) if run.state else (None, None)
    planned = run.parameters.get("job", {}).get("train", {}).get("epochs")
    return EndedRun(
        run.id,
        run.flow_id,
        run.name,
        state or "",
        message or "no cause was reported",
        resumes,
        last_epoch,
        planned,
        mlflow_run_id,
    )


def training_left(training: Path) -> tuple[int | None, str | None]:
    """Last epoch that was saved and id of the MLflow run of the training in this folder; None where there is none."""
    saved = history(training)
    return (saved[-1].epoch if saved else None), _mlflow_run_of(training)


def _mlflow_run_of(training: Path) -> str | None:
    try:
        state = read_state(training)
    except JobError as error:  # damaged: the rest can still be told
        get_run_logger().warning("%s", error)
        return None
    return state.mlflow_run_id if state else None


def _say_it_is_cancelled(client: SyncPrefectClient, run: FlowRun) -> None:
    from prefect.states import Cancelled

    client.set_flow_run_state(run.id, Cancelled(message=run.state and run.state.message), force=True)


def _say_it_runs(client: SyncPrefectClient, run: FlowRun) -> None:
    from prefect.states import Running

    client.set_flow_run_state(run.id, Running(message=STILL_ALIVE), force=True)
    get_run_logger().warning("run %s: %s", run.name, STILL_ALIVE)


@task(name="close what it left open")
def close_open_ends(ended: EndedRun) -> None:
    """Its steps that seem to run have crashed; its MLflow run has failed."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        _end_steps(client, ended.run_id)
    if ended.mlflow_run_id is None:
        return
    logger, run_id, registry = get_run_logger(), ended.mlflow_run_id, Registry(load_site_settings().mlflow_url)
    try:
        patiently(lambda: close_mlflow_run(registry, run_id), logger.warning)
    except RegistryError as error:
        logger.error("MLflow run %s stays open: %s", run_id, error)


def _end_steps(client: SyncPrefectClient, run_id: UUID) -> None:
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterId,
        TaskRunFilter,
        TaskRunFilterState,
        TaskRunFilterStateType,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    under_way = TaskRunFilterStateType(any_=[StateType.PENDING, StateType.RUNNING])
    for step in client.read_task_runs(
        flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run_id])),
        task_run_filter=TaskRunFilter(state=TaskRunFilterState(type=under_way)),
    ):
        client.set_task_run_state(step.id, Crashed(message="its flow run ended"), force=True)


def close_mlflow_run(registry: Registry, run_id: str) -> None:
    """FAILED, when nobody closed it."""
    if registry.run_status(run_id) == "RUNNING":
        registry.finish_run(run_id, "FAILED")


@task(name="take it up again")
def take_up(ended: EndedRun, config: AttendConfig) -> str:
    """Have the run start again; returns why it cannot, or nothing."""
    why = f"taken up again by itself after {ended.state}, {ended.resumes + 1} of {config.max_resumes}"
    try:
        resume_run(ended.run_id, load_site_settings().runs, why, config.resume_wait_s)
    except PasslineError as error:
        get_run_logger().error("%s", error)
        return str(error)
    return ""


@task(name="tell people")
def tell(ended: EndedRun, config: AttendConfig, refusal: str = "") -> Alert:
    """Raise the alert: in the log, and as an event for the automation that calls the webhook."""
    from prefect.events import emit_event

    alert = compose_alert(ended, config, load_site_settings().prefect_public_url, refusal)
    get_run_logger().error("%s", alert.text)
    resource = {"prefect.resource.id": f"prefect.flow-run.{ended.run_id}", "prefect.resource.name": ended.name}
    flow = {"prefect.resource.id": f"prefect.flow.{ended.flow_id}", "prefect.resource.name": "retrain"}
    related = [{**flow, "prefect.resource.role": "flow"}]
    emit_event(event=ALERT_EVENT, resource=resource, related=related, payload=alert.model_dump(mode="json"))
    return alert
