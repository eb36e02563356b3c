"""The environment that is made from the serving lock alone: what it lacks, and that the service works in it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import builders
from data_contracts.inspection import Inspection
from servers import REPOSITORY, LiveHost
from serving.bundle import open_bundle
from serving.detector import open_detector
from serving.images import decode_image
from serving.verdict import judge, score_floor

BANNED = ("torch", "ultralytics", "prefect", "mlflow", "dvc", "great_expectations", "pandas")


@pytest.fixture(scope="module")
def python() -> str:
    """The interpreter of the serving environment."""
    path = Path(os.environ.get("PASSLINE_SERVING_PYTHON", REPOSITORY / ".venv-serving" / "bin" / "python"))
    assert path.exists(), f"no serving environment at {path}: run `make setup`, or set PASSLINE_SERVING_PYTHON"
    return str(path)


def loaded_after(python: str, module: str, home: Path) -> set[str]:
    """Top-level packages in sys.modules after importing `module`, and nothing else, in the serving environment."""
    program = f"import {module}, json, sys; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "BENTOML_HOME": str(home / "bentoml")}
    done = subprocess.run(
        [python, "-c", program], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("package", BANNED)
def test_training_packages_are_not_there(python: str, package: str) -> None:
    program = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is not None)"
    assert subprocess.run([python, "-c", program], cwd=REPOSITORY, timeout=60).returncode == 0


def test_the_service_loads_nothing_of_the_training_side(python: str, tmp_path: Path) -> None:
    loaded = loaded_after(python, "serving.worker", tmp_path)
    assert not loaded & set(BANNED)
    assert {"bentoml", "onnxruntime"} <= loaded


def test_the_process_that_keeps_the_workers_stays_small(python: str, tmp_path: Path) -> None:
    loaded = loaded_after(python, "serving.service", tmp_path)
    assert "bentoml" in loaded
    assert not loaded & {"onnxruntime", "cv2", "fastapi"}


@pytest.mark.parametrize("module", ["serving.detector", "serving.agent", "serving.store", "serving.fingerprint"])
def test_what_flows_use_loads_without_bentoml(python: str, tmp_path: Path, module: str) -> None:
    loaded = loaded_after(python, module, tmp_path)
    assert not loaded & {"bentoml", "fastapi", *BANNED}
    assert "serving" in loaded


def test_the_service_answers_there_as_the_detector_does_here(python: str, tmp_path: Path) -> None:
    source = builders.first_bundle(tmp_path / "bundle")
    bundle = open_bundle(source)
    picture = builders.encode(builders.plate((97, 61), ((0, 0, 50, 30), builders.RED)), "jpeg")
    found = open_detector(bundle, builders.CPU).detect(
        [decode_image(picture, builders.LIMITS)], score_floor(bundle.manifest.verdict)
    )[0]
    expected = judge(found, bundle.manifest.verdict)[1].records(bundle.manifest.model.class_names)
    live = LiveHost(tmp_path, python=python)
    try:
        live.start()
        outcome = live.redeploy(source)
        assert outcome.status == "converged", outcome.message
        answer = Inspection.model_validate_json(live.post(picture).content)
        assert answer.detections == expected
        assert len(expected) > 0
        assert answer.release.digest == source.name
        live.stop()
    finally:
        live.kill()
