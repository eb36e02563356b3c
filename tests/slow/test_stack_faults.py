"""What may die or restart while a job trains, on real servers (field case A23).

The run ends in a truthful state within five minutes, its slot is free again, somebody is told, and it goes on in the
same MLflow run.

Seconds are printed, not asserted, apart from the five minutes that are promised.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from deployments.automations import AlertConfig, apply_automations
from deployments.cli import app
from deployments.demo.plates import PlateCounts, write_plates
from deployments.deploy import deploy
from deployments.environment import StackSettings, alert_webhook
from deployments.follow import start_retrain
from deployments.own_stack import environment, own_settings, own_stack
from deployments.params import load_job, load_params
from deployments.programs import MLFLOW_SERVER, PREFECT_SERVER, TRAINING_WORKER
from deployments.stack import Stack
from tasks.dataset_repo import add_dataset
from webhook import Received, webhook_receiver

PROMISED_S = 300.0
NAME = "faults"
JOB = """
dataset: {{name: faults, ref: {{repository: faults}}}}
seal: {{name: faults, golden_pictures: 2}}
train: {{imgsz: 64, epochs: {epochs}, batch: 8, threads: 1}}
thresholds: {{lowest: 0.001, fallback: 0.001, highest: 0.8}}
parity: {{score_floor: 0.001, score_margin: 0.0001, minimum_compared: 1}}
gates: {{min_map50: 1.0}}
"""


@pytest.fixture(scope="module")
def alerts() -> Iterator[Received]:
    with webhook_receiver() as received:
        yield received


@pytest.fixture(scope="module")
def settings(alerts: Received) -> Iterator[StackSettings]:
    with own_settings() as found, environment({"PASSLINE_ALERT_WEBHOOK": alerts.url}):
        yield found


@pytest.fixture(scope="module")
def stack(settings: StackSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Both servers and the training worker, with one slot and data."""
    with own_stack(settings, frozenset({PREFECT_SERVER, MLFLOW_SERVER, TRAINING_WORKER}), print):
        apply_automations(deploy(settings.project), AlertConfig(silence_s=90, unattended_s=30), alert_webhook())
        folder = tmp_path_factory.mktemp("data") / "set"
        write_plates(folder, seed=5, counts=PlateCounts(train=24, val=6, test=6, held_out=0))
        add_dataset(folder, settings.home / "datasets", NAME, "plates")
        pause_schedules()
        allow(slots=1)
        yield Stack(settings)


def pause_schedules() -> None:
    """Nothing but what a test submits shall take the slot."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        for deployment in client.read_deployments():
            client.pause_deployment(deployment.id)


def allow(slots: int | None = None, resumes: int | None = None) -> None:
    """Set the slots of the training pool, and how often `attend` takes a run up again by itself."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolUpdate

    with get_client(sync_client=True) as client:
        if slots is not None:
            client.update_work_pool("training", WorkPoolUpdate(concurrency_limit=slots))
        if resumes is not None:
            found = client.read_deployment_by_name("attend/attend")
            config = {"config": {"max_resumes": resumes, "resume_wait_s": 0}}
            client.update_deployment(found.id, DeploymentUpdate(parameters=config))


def submit(settings: StackSettings, folder: Path, epochs: int) -> UUID:
    job = folder / f"job-{epochs}.yaml"
    job.write_text(JOB.format(epochs=epochs))
    params = load_params(settings.project / "params.yaml")
    return start_retrain(load_job(job, params), params.promote)


def state_of(run_id: UUID) -> Any:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return client.read_flow_run(run_id).state


def wait_for(what: str, met: Callable[[], Any], timeout_s: float = PROMISED_S) -> Any:
    """The first true answer of `met`."""
    started = time.monotonic()
    while not (answer := met()):
        assert time.monotonic() - started < timeout_s, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.5)
    print(f"{what}: {time.monotonic() - started:.1f} s")
    return answer


def saved_epochs(settings: StackSettings, run_id: UUID) -> int:
    return len(list((settings.home / "runs" / str(run_id)).glob("train/checkpoints/epoch-*.json")))


def trains(settings: StackSettings, run_id: UUID, epochs: int) -> None:
    """Wait until so many epochs are saved."""

    def met() -> bool:
        state = state_of(run_id)
        assert not state.is_final(), state
        return saved_epochs(settings, run_id) >= epochs

    wait_for(f"{epochs} epochs saved", met)


def ended(run_id: UUID, *names: str) -> Any:
    """Wait until the run has ended, in one of the states named."""
    state = wait_for("run ended", lambda: found if (found := state_of(run_id)).is_final() else None)
    assert state.name in names, state
    return state


def mlflow_runs(settings: StackSettings, run_id: UUID) -> list[Any]:
    """The MLflow runs that belong to a flow run."""
    from mlflow import MlflowClient

    client = MlflowClient(settings.mlflow_url)
    experiments = [one.experiment_id for one in client.search_experiments()]
    return list(client.search_runs(experiments, f"tags.`passline.flow_run_id` = '{run_id}'"))


def epochs_logged(settings: StackSettings, mlflow_run_id: str) -> list[int]:
    from mlflow import MlflowClient

    return sorted(m.step for m in MlflowClient(settings.mlflow_url).get_metric_history(mlflow_run_id, "seconds/epoch"))


def names_of(run_id: UUID) -> list[str]:
    """The names of all states that a run was in."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return [state.name for state in client.read_flow_run_states(run_id)]


def process_of(run_id: UUID) -> int:
    """The number of the process that works on a run."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return int(client.read_flow_run(run_id).infrastructure_pid.rsplit(":", 1)[-1])


def kill_tree(pid: int) -> None:
    """SIGKILL for a process and all below it, the top first."""
    top = psutil.Process(pid)
    for process in [top, *top.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def test_worker_and_children_killed(stack: Stack, settings: StackSettings, alerts: Received, tmp_path: Path) -> None:
    allow(resumes=0)
    first = submit(settings, tmp_path, epochs=30)
    trains(settings, first, epochs=2)
    second = submit(settings, tmp_path, epochs=2)
    kill_tree(stack.manager.state(TRAINING_WORKER).pid)
    done = saved_epochs(settings, first)

    assert "its process is gone" in ended(first, "Crashed").message
    ended(second, "Rejected")
    (alert,) = wait_for("alert received", lambda: alerts.of(first))
    assert (alert["last_epoch"], alert["epochs"], alert["resumes_by_itself"]) == (done, 30, False)
    assert f"last epoch {done} of 30" in alert["text"]
    assert f"passline resume {first}" in alert["text"]
    (tracked,) = mlflow_runs(settings, first)
    assert tracked.info.status == "FAILED"

    answer = CliRunner().invoke(app, ["resume", str(first)])
    assert answer.exit_code == 0, answer.output
    ended(first, "Rejected")
    (tracked,) = mlflow_runs(settings, first)
    assert tracked.info.status == "FINISHED"
    assert epochs_logged(settings, tracked.info.run_id) == list(range(1, 31))
    again = CliRunner().invoke(app, ["resume", str(first)])
    assert "a run that did not complete, got state Rejected" in str(again.exception)


def test_a_killed_flow_process_goes_on_by_itself_as_often_as_allowed(
    stack: Stack, settings: StackSettings, alerts: Received, tmp_path: Path
) -> None:
    allow(resumes=1)
    run_id = submit(settings, tmp_path, epochs=20)
    trains(settings, run_id, epochs=2)
    os.kill(process_of(run_id), signal.SIGKILL)
    wait_for("taken up again", lambda: "AwaitingRetry" in names_of(run_id) and state_of(run_id).is_running())
    assert wait_for("alert received", lambda: alerts.of(run_id))[0]["resumes_by_itself"]
    trains(settings, run_id, epochs=saved_epochs(settings, run_id) + 1)
    os.kill(process_of(run_id), signal.SIGKILL)
    wait_for("second alert received", lambda: len(alerts.of(run_id)) == 2)
    assert not alerts.of(run_id)[1]["resumes_by_itself"]
    ended(run_id, "Crashed")
    assert names_of(run_id).count("AwaitingRetry") == 1
    (tracked,) = mlflow_runs(settings, run_id)
    assert tracked.info.status == "FAILED"


def test_both_servers_restarted_while_it_trains(stack: Stack, settings: StackSettings, tmp_path: Path) -> None:
    allow(resumes=0)
    run_id = submit(settings, tmp_path, epochs=30)
    trains(settings, run_id, epochs=2)
    for server in (PREFECT_SERVER, MLFLOW_SERVER):
        os.kill(stack.manager.state(server).pid, signal.SIGKILL)
    wait_for("Prefect answers", lambda: answers(settings))
    ended(run_id, "Rejected")
    (tracked,) = mlflow_runs(settings, run_id)
    assert tracked.info.status == "FINISHED"
    assert epochs_logged(settings, tracked.info.run_id) == list(range(1, 31))


def answers(settings: StackSettings) -> bool:
    try:
        return httpx.get(f"{settings.prefect_url}/api/health", timeout=2).is_success
    except httpx.HTTPError:
        return False


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 64 MiB at `folder`; the test is skipped where this machine does not allow it."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(file: Path) -> None:
    """Leave no byte free on the disk of `file`."""
    with file.open("wb") as handle, suppress(OSError):
        while True:
            handle.write(bytes(2**16))
            handle.flush()


def test_a_full_disk_fails_the_run_with_its_name_and_the_run_goes_on_when_there_is_room(
    stack: Stack, settings: StackSettings, alerts: Received, tmp_path: Path
) -> None:
    allow(resumes=0)
    with small_disk(settings.home / "runs"):
        run_id = submit(settings, tmp_path, epochs=30)
        trains(settings, run_id, epochs=2)
        fill(settings.home / "runs" / "filler")
        assert "disk" in ended(run_id, "Failed").message
        (alert,) = wait_for("alert received", lambda: alerts.of(run_id))
        assert f"passline resume {run_id}" in alert["text"]
        (settings.home / "runs" / "filler").unlink()
        answer = CliRunner().invoke(app, ["resume", str(run_id)])
        assert answer.exit_code == 0, answer.output
        ended(run_id, "Rejected")
        (tracked,) = mlflow_runs(settings, run_id)
        assert epochs_logged(settings, tracked.info.run_id) == list(range(1, 31))


def test_the_server_gives_up_a_run_when_nobody_is_left_and_tells_people(
    stack: Stack, settings: StackSettings, alerts: Received, tmp_path: Path
) -> None:
    allow(resumes=0)
    run_id = submit(settings, tmp_path, epochs=30)
    trains(settings, run_id, epochs=1)
    worker = stack.manager.state(TRAINING_WORKER).pid
    flow = process_of(run_id)
    os.kill(worker, signal.SIGSTOP)  # it reports nothing, and Supervisor does not start another one
    try:
        kill_tree(flow)
        assert "no sign of life" in ended(run_id, "Crashed").message
        (alert,) = wait_for("alert of the server received", lambda: alerts.of(run_id, by_server=True))
        assert "Nobody on the training side answers" in alert["text"]
        assert f"passline resume {run_id}" in alert["text"]
    finally:
        os.kill(worker, signal.SIGCONT)
