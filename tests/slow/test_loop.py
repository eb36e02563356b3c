"""The whole loop on the real stack: real Prefect and MLflow servers, both workers, DVC remote, agent and service.

The training is small; what is tested is that the parts do together what each promises, and that inspection goes on when
the control plane is gone. Data are a slice of a real set, or the sample plates where the shared folder is missing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import numpy as np
import pytest

import builders
from data_contracts.detections import Detections
from data_contracts.inspection import Inspection
from data_contracts.release import now
from deployments.demo.plates import PlateCounts, write_plates
from deployments.deploy import deploy
from deployments.environment import StackSettings
from deployments.follow import RunEnd, follow_run, start_retrain
from deployments.own_stack import own_settings, own_stack
from deployments.params import load_job, load_params
from deployments.programs import MLFLOW_SERVER, PREFECT_SERVER, TRAINING_WORKER
from deployments.stack import Stack
from serving.bundle import open_bundle
from serving.detector import open_detector
from serving.engines import EngineOptions
from serving.status import is_live, is_ready, service_status
from serving.verdict import judge, score_floor
from tasks.dataset_repo import add_dataset
from tasks.registry import Registry
from tasks.service_manager import SERVICE

ROOT = Path(__file__).resolve().parents[2]
NAME = "loop"
JOB = """
dataset: {name: loop, ref: {repository: loop}}
seal: {name: loop, golden_pictures: 3}
train: {imgsz: 96, epochs: 3, batch: 8}
thresholds: {lowest: 0.001, fallback: 0.001, highest: 0.8}
parity: {score_floor: 0.001, score_margin: 0.0001, minimum_compared: 1}
gates:
  {margin: 1.0, min_map50: 0.0, min_instances: 1, max_escape_rate: 1.0, max_overkill_rate: 1.0,
   max_false_alarms_per_picture: 300.0, max_slowdown: 10, max_memory_growth: 10, max_forgotten: 1.0}
"""


def write_slice(folder: Path) -> None:
    """Every sixth picture of a real set, with its labels; the sample plates where the real set is missing."""
    real = builders.shared_data_or_none()
    if real is None:
        write_plates(folder, seed=3, counts=PlateCounts(train=40, val=12, test=12, held_out=0))
        return
    source = real / "neu-det-yolo"
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for picture in sorted((source / "images" / split).iterdir())[::6]:
            shutil.copy(picture, folder / "images" / split)
            shutil.copy(source / "labels" / split / f"{picture.stem}.txt", folder / "labels" / split)
    shutil.copy(source / "data.yaml", folder)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.fixture(scope="module")
def settings() -> Iterator[StackSettings]:
    with own_settings() as found:
        yield found


@pytest.fixture(scope="module")
def stack(settings: StackSettings) -> Iterator[Stack]:
    with own_stack(settings, None, print):
        deploy(settings.project)
        yield Stack(settings)


def limit_pools(slots: int) -> None:
    """At most `slots` runs at a time in each pool: a flow that waits for a slot of its own parent would hang."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolUpdate

    with get_client(sync_client=True) as client:
        for pool in ("training", "inference"):
            client.update_work_pool(pool, WorkPoolUpdate(concurrency_limit=slots))


def retrain(settings: StackSettings, tmp_path: Path) -> tuple[UUID, RunEnd]:
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    params = load_params(settings.project / "params.yaml")
    run_id = start_retrain(load_job(job, params), params.promote)
    return run_id, follow_run(run_id, print)


@pytest.fixture(scope="module")
def promoted(stack: Stack, settings: StackSettings, tmp_path_factory: pytest.TempPathFactory) -> tuple[UUID, RunEnd]:
    """The first retraining, with one slot per pool."""
    folder = tmp_path_factory.mktemp("data")
    write_slice(folder / "set")
    add_dataset(folder / "set", settings.home / "datasets", NAME, "slice")
    limit_pools(1)
    run_id, end = retrain(settings, folder)
    assert end.name == "Promoted", end
    return run_id, end


@pytest.fixture(scope="module")
def registry(settings: StackSettings) -> Registry:
    return Registry(settings.mlflow_url)


def artifacts_of(run_id: UUID) -> set[str]:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId

    with get_client(sync_client=True) as client:
        found = client.read_artifacts(
            artifact_filter=ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run_id])), limit=100
        )
    return {artifact.key for artifact in found if artifact.key}


def test_the_champion_is_what_the_service_answers_with(
    promoted: tuple[UUID, RunEnd], registry: Registry, settings: StackSettings
) -> None:
    champion, status = registry.champion(NAME), service_status(settings.service_url)
    assert champion is not None
    assert status is not None
    assert status.active is not None
    assert status.active.digest == champion.digest
    assert "candidate" not in registry.aliases(NAME)


def test_a_retraining_leaves_one_finished_mlflow_run_that_names_its_data(
    promoted: tuple[UUID, RunEnd], registry: Registry, settings: StackSettings
) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(settings.mlflow_url)
    (experiment,) = [one for one in client.search_experiments() if one.name != "Default"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.tags["passline.flow_run_id"] == str(promoted[0])
    assert run.data.tags["passline.dataset.hash"].endswith(".dir")
    assert len(client.get_metric_history(run.info.run_id, "metrics/mAP50B")) == 3


def test_a_run_leaves_in_prefect_what_a_person_wants_to_look_at(promoted: tuple[UUID, RunEnd]) -> None:
    assert {"data-validation", "gates", "metrics", "pictures", "mlflow-run", "data-report"} <= artifacts_of(promoted[0])


def test_pinned_data_are_untouched_by_a_training(promoted: tuple[UUID, RunEnd], settings: StackSettings) -> None:
    (pinned,) = [folder for folder in (settings.home / "pinned").iterdir() if folder.is_dir()]
    repository = settings.home / "datasets" / NAME
    assert tree(pinned) == tree(repository / "data")
    subprocess.run([sys.executable, "-m", "dvc", "status", "--quiet"], cwd=repository, check=True)


def test_detections_over_http_are_those_of_the_detector_in_process(
    promoted: tuple[UUID, RunEnd], settings: StackSettings
) -> None:
    status = service_status(settings.service_url)
    assert status is not None
    assert status.active is not None
    bundle = open_bundle(settings.home / "host" / "releases" / status.active.digest, status.active.digest)
    detector = open_detector(bundle, EngineOptions("cpu", allow_fallback=False, threads=1))
    for image in odd_pictures(settings):
        answer = httpx.post(f"{settings.service_url}/v1/inspect", content=builders.encode(image), timeout=30)
        inspection = Inspection.model_validate_json(answer.content)
        verdict, expected = judge(
            *detector.detect([image], score_floor(bundle.manifest.verdict)), bundle.manifest.verdict
        )
        found = Detections.from_records(inspection.detections)
        assert inspection.verdict == verdict
        assert inspection.image_wh == (image.shape[1], image.shape[0])
        np.testing.assert_array_equal(found.class_ids, expected.class_ids)
        np.testing.assert_allclose(found.boxes_xyxy_px, expected.boxes_xyxy_px, atol=0.05)
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)


def odd_pictures(settings: StackSettings) -> list[Any]:
    """Pictures of the data set, cut or tiled to square, wide, tall and odd sizes."""
    from tasks.parity import tile_to
    from tasks.pictures import read_picture

    files = sorted((settings.home / "datasets" / NAME / "data" / "images").rglob("*.jpg"))
    sizes = [(200, 200), (640, 200), (200, 640), (333, 517)]
    return [tile_to(read_picture(file), wh) for file, wh in zip(files[:4], sizes, strict=True)]


def test_an_equal_candidate_is_registered_and_the_champion_stays(
    promoted: tuple[UUID, RunEnd], registry: Registry, settings: StackSettings, tmp_path: Path
) -> None:
    before = registry.champion(NAME)
    _, end = retrain(settings, tmp_path)
    assert end.name == "Registered", end
    assert registry.champion(NAME) == before
    assert registry.aliases(NAME)["candidate"].number == 2


def test_promotion_on_demand_follows_the_host_and_rollback_is_followed_by_reconcile(
    promoted: tuple[UUID, RunEnd], registry: Registry, settings: StackSettings
) -> None:
    first = registry.champion(NAME)
    assert first is not None
    run_flow("promote/promote", {"name": NAME, "version": 2, "reason": "a person said so"})
    champion = registry.champion(NAME)
    assert champion is not None
    assert (champion.number, registry.aliases(NAME)["previous"].number) == (2, 1)
    assert "a person said so" in registry.version_tags(NAME, 2)["passline.promotion"]
    assert active_digest(settings) == champion.digest

    run_flow("rollback/rollback", {"reason": "line says no"})
    assert active_digest(settings) == first.digest
    run_flow("reconcile/reconcile", {})
    assert registry.champion(NAME) == first


def active_digest(settings: StackSettings) -> str | None:
    status = service_status(settings.service_url)
    return status.active.digest if status and status.active else None


def run_flow(name: str, parameters: dict[str, Any]) -> Any:
    from prefect.deployments import run_deployment

    run = run_deployment(name, parameters=parameters, timeout=240, poll_interval=1, as_subflow=False)
    assert run.state.is_completed(), run.state
    return run


def test_changed_configuration_drains_and_restarts_the_service_and_the_gap_is_told(
    promoted: tuple[UUID, RunEnd], stack: Stack, settings: StackSettings
) -> None:
    pid = stack.manager.state(SERVICE).pid
    run_flow("ensure_service/ensure_service", {})
    assert stack.manager.state(SERVICE).pid == pid
    digest = active_digest(settings)
    settings.host_env_file.write_text(settings.host_env_file.read_text() + "PASSLINE_MAX_BATCH=4\n")
    run = run_flow("ensure_service/ensure_service", {})
    assert stack.manager.state(SERVICE).pid != pid
    status = service_status(settings.service_url)
    assert status is not None
    assert (status.max_batch, status.active and status.active.digest) == (4, digest)
    lines: list[str] = []
    follow_run(run.id, lines.append)
    assert any("service restarted" in line and "ms without a ready service" in line for line in lines)


@pytest.mark.parametrize(
    ("case", "parameters", "field"),
    [("out of bounds", {"host_timeout_s": 0}, "host_timeout_s"), ("misspelt", {"host_timeout": 60}, "host_timeout")],
)
def test_the_server_refuses_wrong_parameters_before_a_run_exists(
    case: str, parameters: dict[str, Any], field: str, stack: Stack, settings: StackSettings
) -> None:
    api = f"{settings.prefect_url}/api"
    deployment = httpx.get(f"{api}/deployments/name/reconcile/reconcile").json()["id"]
    before = httpx.post(f"{api}/flow_runs/count", json={}).json()
    answer = httpx.post(f"{api}/deployments/{deployment}/create_flow_run", json={"parameters": {"config": parameters}})
    assert answer.is_client_error
    assert field in answer.text
    assert httpx.post(f"{api}/flow_runs/count", json={}).json() == before


def test_ten_missed_nights_and_a_manual_run_make_two_runs_after_downtime(stack: Stack, settings: StackSettings) -> None:
    from prefect.client.orchestration import get_client
    from prefect.states import Scheduled

    stack.manager.stop("inference-worker", 60)
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("ensure_service/ensure_service")
        made = [
            client.create_flow_run_from_deployment(
                deployment.id, state=Scheduled(scheduled_time=now() - timedelta(days=day)), tags=["auto-scheduled"]
            ).id
            for day in range(10, 0, -1)
        ]
        manual = client.create_flow_run_from_deployment(deployment.id).id
        stack.manager.start("inference-worker")
        deadline = time.monotonic() + 180
        while not all(client.read_flow_run(run).state.is_final() for run in (*made, manual)):
            assert time.monotonic() < deadline
            time.sleep(1)
        states = [client.read_flow_run(run).state for run in made]
        assert [state.is_cancelled() for state in states] == [True] * 9 + [False]
        assert all("catches up" in state.message for state in states[:9])
        assert states[-1].is_completed()
        assert client.read_flow_run(manual).state.is_completed()


def test_inspection_goes_on_without_the_control_plane_also_after_a_restart(
    promoted: tuple[UUID, RunEnd], stack: Stack, settings: StackSettings
) -> None:
    picture = builders.encode(odd_pictures(settings)[0])
    before = verdict_of(settings, picture)
    for program in (TRAINING_WORKER, "inference-worker", MLFLOW_SERVER, PREFECT_SERVER):
        stack.manager.stop(program, 60)
    assert verdict_of(settings, picture) == before
    stack.manager.stop(SERVICE, 60)
    assert not is_live(settings.service_url)
    stack.manager.start(SERVICE)
    deadline = time.monotonic() + 120
    while not is_ready(settings.service_url):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert verdict_of(settings, picture) == before


def verdict_of(settings: StackSettings, picture: bytes) -> tuple[Any, ...]:
    answer = httpx.post(f"{settings.service_url}/v1/inspect", content=picture, timeout=30)
    assert answer.status_code == 200, answer.text
    body = json.loads(answer.content)
    return body["verdict"], body["release"]["digest"], body["detections"]
