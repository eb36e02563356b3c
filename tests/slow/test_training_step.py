"""A real training on real pictures of squares, with a real MLflow server, without any way to another machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from builders import GREEN, RED, plate
from data_contracts.errors import JobError, RegistryError
from mlflow_server import mlflow_server
from serving.bundle import open_bundle
from tasks.preflight import look_ahead
from tasks.registry import RegisteredVersion, Registry
from training_fakes import PIN, PREFLIGHT, ahead

ROOT = Path(__file__).resolve().parents[2]
SHAPES = ((96, 64), (64, 96), (96, 96))


def write_squares(folder: Path) -> None:
    """Red and green squares on noisy plates of three shapes; every sixth plate is good."""
    rng = np.random.default_rng(7)
    for split, count in (("train", 24), ("val", 9), ("test", 12)):
        (folder / "images" / split).mkdir(parents=True)
        (folder / "labels" / split).mkdir(parents=True)
        for number in range(count):
            width, height = SHAPES[number % 3]
            patches, rows = [], []
            for class_id, colour in enumerate((RED, GREEN)) if number % 6 != 5 else ():
                side = int(rng.integers(14, 24))
                left, top = int(rng.integers(0, width - side)), int(rng.integers(0, height - side))
                patches.append(((left, top, left + side, top + side), colour))
                centre = ((left + side / 2) / width, (top + side / 2) / height)
                rows.append(f"{class_id} {centre[0]:.6f} {centre[1]:.6f} {side / width:.6f} {side / height:.6f}\n")
            noise = rng.normal(0, 6, (height, width, 3))
            image = np.clip(plate((width, height), *patches) + noise, 0, 255).astype(np.uint8)
            assert cv2.imwrite(str(folder / "images" / split / f"{split}{number:02}.png"), image[:, :, ::-1])
            (folder / "labels" / split / f"{split}{number:02}.txt").write_text("".join(rows))
    names = "train: images/train\nval: images/val\ntest: images/test\nnames: [red, green]\n"
    (folder / "data.yaml").write_text(names)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as url:
        yield url


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, server: str) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("training")
    write_squares(folder / "dataset")
    (folder / "home").mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "ORT_DISABLE_TELEMETRY": "1",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "training_driver.py"), str(folder), server],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=850,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    result: dict[str, Any] = json.loads((folder / "report.json").read_text())
    print(json.dumps(result["seconds"]))
    return result | {"folder": str(folder)}


@pytest.fixture(scope="module")
def client(server: str) -> Any:
    return Registry(server)._client


def test_nothing_reached_for_another_machine_or_an_installer(report):
    assert report["attempts"] == []
    assert report["guarded"] == 4, "the driver and three training processes"


def test_the_home_folder_and_the_working_directory_stay_clean(report):
    folder = Path(report["folder"])
    assert [path for path in (folder / "home").rglob("*") if path.is_file()] == []
    expected = {"again", "bare", "bundles", "dataset", "end_to_end", "export", "home", "probes", "raw", "report.json"}
    assert {path.name for path in folder.iterdir()} == expected | {
        "run",
        "two-heads.pt",
        "var",
        "guards",
        "working",
        "failing",
    }


def test_one_run_per_training_and_the_failed_one_is_closed(report, client):
    experiments = [one.name for one in client.search_experiments() if one.name != "Default"]
    assert experiments == ["plates"]
    (experiment,) = (one for one in client.search_experiments() if one.name == "plates")
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"])
    assert [run.info.status for run in runs] == ["FINISHED", "FINISHED", "FAILED"]
    assert [run.info.run_id for run in runs[:2]] == report["runs"]
    assert "no-such.yaml" in report["failure"]


def test_the_run_says_where_it_comes_from(report, client):
    run = client.get_run(report["runs"][0])
    assert run.data.params["lr0"] == "0.01"
    assert run.data.params["optimizer"] == "AdamW"
    tags = run.data.tags
    assert tags["passline.dataset.hash"] == PIN.dvc_hash
    assert tags["passline.flow_run_id"] == "flow-1"
    assert tags["passline.code.commit"]
    assert tags["passline.code.dirty"] in ("true", "false")


def test_every_epoch_is_at_its_step(report, client):
    for name in ("metrics/mAP50B", "train/box_loss", "val/cls_loss", "lr/pg0", "seconds/epoch"):
        history = client.get_metric_history(report["runs"][0], name)
        assert [point.step for point in history] == list(range(1, report["epochs"] + 1)), name
    assert report["epochs"] == 17
    assert sum(line.startswith("epoch 17/17") for line in report["said"]) == 1


def test_curves_pictures_and_weights_are_with_the_run(report, client):
    run_id = report["runs"][0]
    plots = {Path(file.path).name for file in client.list_artifacts(run_id, "plots")}
    assert {"results.png", "confusion_matrix.png", "BoxPR_curve.png", "val_batch0_pred.jpg", "labels.jpg"} <= plots
    assert [file.path for file in client.list_artifacts(run_id, "weights")] == ["weights/best.pt"]
    tables = {Path(file.path).name for file in client.list_artifacts(run_id, "training")}
    assert tables == {"args.yaml", "effective.json", "job.yaml", "recovery.json", "results.csv"}


def test_the_run_says_what_it_really_ran_with(report, client):
    tags = client.get_run(report["runs"][0]).data.tags
    assert tags["passline.effective.optimizer"] == "AdamW"
    assert tags["passline.effective.lr0"] == "[0.01]"
    assert tags["passline.effective.pictures_train"] == str(report["pictures_train"])
    assert tags["passline.resumes"] == "0"


def test_the_weights_are_those_of_plain_ultralytics(report):
    assert report["same_weights"]


def test_the_exported_model_answers_as_torch_does(report):
    assert report["difference"] < 1e-3
    assert report["layout"] == "raw"
    assert report["class_names"] == ["red", "green"]
    for layout, (found, difference) in report["end_to_end"].items():
        assert found == layout
        assert difference < 1e-3, layout


def test_the_sealed_bundle_finds_the_squares(report):
    bundle = open_bundle(Path(report["bundle"]), report["digest"])
    assert bundle.manifest.provenance.mlflow_run_id == report["runs"][0]
    assert any(picture.detections for picture in bundle.golden.pictures)
    result = report["result"]
    assert result["map50"] > 0.6, result
    assert [one["instances"] for one in result["classes"]] == [10, 10]
    assert result["good_pictures"] == 2
    assert result["settings"] == report["settings"]


def test_the_bundle_finds_what_ultralytics_finds_on_pictures_of_all_shapes(report):
    parity = report["parity"]
    assert parity["holds"], parity
    assert parity["pictures"] == 12
    assert parity["compared"] >= 20


def test_a_rectangular_tensor_makes_parity_fail(report):
    padded = report["padded"]
    assert not padded["holds"]
    assert padded["failures"]


@pytest.fixture(scope="module")
def registered(report, server) -> RegisteredVersion:
    registry = Registry(server)
    first = registry.register_bundle("plates", report["runs"][0], Path(report["bundle"]), report["digest"], "2026.1")
    registry.set_alias("plates", "candidate", first.number)
    return first


def test_registering_twice_makes_one_version(report, server, registered):
    registry = Registry(server)
    again = registry.register_bundle("plates", report["runs"][0], Path(report["bundle"]), report["digest"], "2026.1")
    assert again == registered
    assert registry.versions("plates") == (registered,)
    assert (registered.digest, registered.label, registered.run_id) == (report["digest"], "2026.1", report["runs"][0])


def test_a_registered_bundle_comes_back_whole(server, registered, report, tmp_path):
    fetched = Registry(server).download_bundle(registered, tmp_path)
    assert open_bundle(fetched, report["digest"]).digest == report["digest"]


def test_aliases_move_and_an_aliased_version_is_not_deleted(server, registered):
    registry = Registry(server)
    assert registry.aliases("plates") == {"candidate": registered}
    assert registry.champion("plates") is None
    assert registry.champion("never-heard-of") is None
    assert registry.versions("never-heard-of") == ()
    with pytest.raises(RegistryError, match=r"no alias on a version to delete, got candidate"):
        registry.delete_version("plates", registered.number)
    registry.set_alias("plates", "champion", registered.number)
    assert registry.champion("plates") == registered
    registry.delete_alias("plates", "champion")
    assert registry.champion("plates") is None
    registry.set_version_tags("plates", registered.number, {"note": "kept"})
    assert registry.version_tags("plates", registered.number)["note"] == "kept"
    assert registry.run_url(registered.run_id, "http://public/").startswith("http://public/#/experiments/")


def test_preflight_leaves_nothing_behind(server, client, report, tmp_path):
    before = len(client.search_runs(["1"]))
    facts = look_ahead(Registry(server), ahead(tmp_path), PREFLIGHT)
    assert facts.artifact_location.startswith("mlflow-artifacts:/")
    assert len(client.search_runs(["1"])) == before


def test_preflight_stops_at_a_server_whose_artifacts_are_a_folder_of_its_own(tmp_path):
    with (
        mlflow_server(tmp_path / "server", serve_artifacts=False, artifacts="/proc/not-for-clients") as url,
        pytest.raises(JobError, match=r"artifact location .* got /proc/not-for-clients"),
    ):
        look_ahead(Registry(url), ahead(tmp_path), PREFLIGHT)


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(RegistryError, match=r"MLflow at http://127\.0\.0\.1:9"):
        Registry("http://127.0.0.1:9").versions("plates")
