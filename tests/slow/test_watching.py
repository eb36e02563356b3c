"""A real training that is watched: what Prefect and MLflow have of it, and that it trains what it would have."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from mlflow import MlflowClient

from mlflow_server import mlflow_server
from tasks.watching.samples import draw_samples

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as url:
        yield url


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, server: str) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("watching")
    (folder / "home").mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "watching_driver.py"), str(folder), server],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    result: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return result


@pytest.fixture(scope="module")
def artifacts(report: dict[str, Any]) -> dict[str, Any]:
    """By key; each key stands once: what is live is replaced, not repeated."""
    keys = [one["key"] for one in report["artifacts"]]
    assert sorted(keys) == ["training-curves", "training-progress", "training-samples"]
    return {one["key"]: one for one in report["artifacts"]}


def test_the_weights_are_those_of_plain_ultralytics(report: dict[str, Any]) -> None:
    assert report["sheets"] == ["epoch-0002.jpg", "epoch-0004.jpg"]
    assert report["same_weights"]


def test_progress_ends_at_the_last_epoch(artifacts: dict[str, Any]) -> None:
    progress = artifacts["training-progress"]
    assert progress["data"] == 100.0
    assert progress["description"] == "finished after epoch 4 of 4"
    assert progress["task_run_id"]


def test_the_curves_have_every_epoch(artifacts: dict[str, Any]) -> None:
    page = artifacts["training-curves"]["data"]
    assert [f"\n| {epoch} |" in page for epoch in range(1, 6)] == [True] * 4 + [False]
    assert "![curves](data:image/svg+xml;base64," in page


def test_the_latest_sheet_is_in_prefect_and_all_are_in_mlflow(
    artifacts: dict[str, Any], report: dict[str, Any], server: str, tmp_path: Path
) -> None:
    assert "After epoch 4" in artifacts["training-samples"]["data"]
    shown = base64.b64decode(artifacts["training-samples"]["data"].partition("base64,")[2].rstrip(")"))
    client = MlflowClient(server)
    kept = [Path(one.path).name for one in client.list_artifacts(report["run"], "samples")]
    assert kept == report["sheets"]
    latest = Path(client.download_artifacts(report["run"], "samples/epoch-0004.jpg", str(tmp_path)))
    assert latest.read_bytes() == shown
    sheet = cv2.imdecode(np.frombuffer(shown, np.uint8), cv2.IMREAD_COLOR)
    assert sheet.shape[1] == 2 * 320 + 8


def test_the_load_is_in_the_system_metrics_of_the_run(report: dict[str, Any], server: str) -> None:
    client = MlflowClient(server)
    names = [name for name in client.get_run(report["run"]).data.metrics if name.startswith("system/")]
    assert {
        "system/cpu_utilization_percentage",
        "system/system_memory_usage_percentage",
        "system/disk_available_megabytes",
        "system/training_cpu_cores",
        "system/training_memory_usage_megabytes",
    } <= set(names)
    memory = client.get_metric_history(report["run"], "system/training_memory_usage_megabytes")
    assert max(point.value for point in memory) > 100
    steps = [point.step for point in client.get_metric_history(report["run"], "system/cpu_utilization_percentage")]
    assert steps == sorted(set(steps))


def test_nothing_went_wrong_unseen(report: dict[str, Any]) -> None:
    assert not [words for words in report["said"] if "failed" in words or "no sample" in words]


def test_a_trainer_that_cannot_be_drawn_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Trainer:
        epoch = 4

    assert draw_samples(Trainer(), tmp_path, 4) is None
    assert "no sample pictures after epoch 5" in caplog.text
