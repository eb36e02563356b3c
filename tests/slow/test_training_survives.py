"""Real trainings that something happens to: killed, stuck, full disk, no memory, no numbers, a bad picture."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import pytest
import yaml

from builders import GREEN, RED, plate
from data_contracts.errors import JobError
from mlflow_server import mlflow_server
from tasks.registry import Registry
from tasks.train import Surroundings, TrainConfig, TrainedModel, train
from tasks.training.events import EpochDone, Event, Observer, Started
from tasks.training.recovery import RecoveryConfig
from tasks.training.tracking import EPOCH_SECONDS
from tasks.yolo import TrainingError
from training_fakes import ORIGIN, TRAIN, is_running

ROOT = Path(__file__).resolve().parents[2]
FAULTS = ROOT / "tests" / "training_faults.py"
PARENT = ROOT / "tests" / "training_parent.py"
RECOVERY = RecoveryConfig(max_resumes=1, nan_lr_factor=0.25, start_s=600, stuck_s=300)
FOUR_EPOCHS = TRAIN | {"epochs": 4, "batch": 8, "nbs": 8}


def write_plates(folder: Path) -> Path:
    """Sixteen plates to train on, eight to validate on, each with one square."""
    for split, count in (("train", 16), ("val", 8)):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for number in range(count):
            left, top, colour = 4 * (number % 8), 3 * number % 32, (RED, GREEN)[number % 2]
            image = plate((64, 64), ((left, top, left + 24, top + 24), colour))
            assert cv2.imwrite(str(folder / "images" / split / f"{number:02}.png"), image[:, :, ::-1])
            row = f"{number % 2} {(left + 12) / 64:.6f} {(top + 12) / 64:.6f} 0.375 0.375\n"
            (folder / "labels" / split / f"{number:02}.txt").write_text(row)
    content = {"path": str(folder), "train": "images/train", "val": "images/val", "names": {0: "red", 1: "green"}}
    (folder / "data.yaml").write_text(yaml.safe_dump(content))
    return folder / "data.yaml"


class Place:
    """Data, home and tracker of the trainings of this module, and what one of them said and reported."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.data_yaml = folder, write_plates(folder / "dataset")
        self.url, self.registry = url, Registry(url)
        self.said: list[str] = []
        self.events: list[Event] = []

    def train(
        self, name: str, fault: str | None = None, meddle: Observer = lambda _: None, **changes: Any
    ) -> TrainedModel:
        """Train in a folder of its own, with a fault, or with something that is done when an event comes."""
        self.said, self.events = [], []

        @contextmanager
        def watch(_: str) -> Iterator[Observer]:
            yield lambda event: (self.events.append(event), meddle(event))[1]

        command = (sys.executable, str(FAULTS), fault) if fault else Surroundings(RECOVERY).command
        around = Surroundings(
            changes.pop("recovery", RECOVERY), watch, sample_epochs=2, sample_pictures=4, command=command
        )
        data, origin = changes.pop("data", self.data_yaml), replace(ORIGIN, experiment=name, flow_run_id=name)
        config = TrainConfig(**(FOUR_EPOCHS | changes))
        run_dir = self.folder / name / "train"
        return train(config, data, run_dir, self.registry, origin, self.folder / "home", self.said.append, around)

    def only_run(self, name: str) -> Any:
        """The one MLflow run of a training."""
        client = self.registry._client
        experiment = client.get_experiment_by_name(name)
        (run,) = client.search_runs([experiment.experiment_id])
        return run

    def epochs(self, name: str) -> list[int]:
        """The epochs in the run, in the order that they were logged."""
        run_id = self.only_run(name).info.run_id
        return [point.step for point in self.registry._client.get_metric_history(run_id, EPOCH_SECONDS)]

    def effective(self, name: str) -> dict[str, Any]:
        """What the last process of a training really ran with."""
        facts: dict[str, Any] = json.loads((self.folder / name / "train" / "effective.json").read_text())
        return facts


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch, mlflow_server(tmp_path_factory.mktemp("mlflow")) as url:
        patch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'tests'}")
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        yield Place(tmp_path_factory.mktemp("survives"), url)


def metrics_of(events: list[Event]) -> list[dict[str, float]]:
    """What was measured of each epoch."""
    return [event.metrics for event in events if isinstance(event, EpochDone)]


@pytest.fixture(scope="module")
def undisturbed(place: Place) -> list[dict[str, float]]:
    place.train("undisturbed")
    assert place.only_run("undisturbed").data.tags["passline.resumes"] == "0"
    return metrics_of(place.events)


def test_kill_9_is_noticed_and_the_same_run_goes_on(place: Place, undisturbed):
    pids = []

    def kill(event: Event) -> None:
        if isinstance(event, Started):
            pids.append(event.pid)
        if isinstance(event, EpochDone) and event.epoch == 2:
            os.kill(pids[-1], signal.SIGKILL)

    trained = place.train("killed", meddle=kill)
    assert trained.epochs == 4
    assert place.epochs("killed") == [1, 2, 3, 4]
    run = place.only_run("killed")
    assert run.info.status == "FINISHED"
    assert "signal 9 (SIGKILL, often the kernel's out-of-memory killer)" in run.data.tags["passline.resume.1"]
    assert [event.first_epoch for event in place.events if isinstance(event, Started)] == [1, 3]
    assert metrics_of(place.events)[:2] == undisturbed[:2], "two trainings with one seed differ"
    rows = (place.folder / "killed/train/results.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["epoch", "1", "2", "3", "4"]


def test_a_loss_that_is_no_number_goes_back_with_a_lower_learning_rate(place: Place):
    place.train("nan", fault="nan")
    tags = place.only_run("nan").data.tags
    assert "the loss of epoch 3 became NaN or infinite" in tags["passline.resume.1"]
    assert tags["passline.lr_factor"] == "0.25"
    assert place.effective("nan")["lr0"] == [pytest.approx(0.25 * TRAIN["lr0"])]
    assert place.epochs("nan") == [1, 2, 3, 4]


def test_a_batch_that_does_not_fit_is_halved_and_told(place: Place):
    place.train("memory", fault="memory")
    run = place.only_run("memory")
    assert run.data.tags["passline.batch"] == "4, asked 8: out of memory"
    assert run.data.params["batch"] == "8"
    effective = place.effective("memory")
    assert (effective["batch"], effective["steps_per_update"]) == (4, 2)
    assert place.epochs("memory") == [1, 2, 3, 4]


def test_a_stuck_process_is_killed_and_the_end_says_how_to_go_on(place: Place):
    patience = RecoveryConfig(max_resumes=0, nan_lr_factor=0.5, start_s=600, stuck_s=25)
    words = r"no sign of life for \d+ s.*last epoch 2 of 4; resume with: passline resume stuck\."
    with pytest.raises(TrainingError, match=words):
        place.train("stuck", fault="silence", recovery=patience)
    run = place.only_run("stuck")
    assert run.info.status == "FAILED"
    assert "passline resume stuck" in run.data.tags["passline.failure"]
    (pid,) = (event.pid for event in place.events if isinstance(event, Started))
    assert not is_running(pid)
    with pytest.raises(JobError, match=r"resume: train\.lr0: expected 0\.004, got 0\.002"):
        place.train("stuck", lr0=0.002)
    assert place.train("stuck", epochs=5).epochs == 5
    run = place.only_run("stuck")
    assert run.info.status == "FINISHED"
    assert (run.data.params["epochs"], run.data.tags["passline.changed.epochs"]) == ("4", "4 -> 5")
    assert place.epochs("stuck") == [1, 2, 3, 4, 5]


def test_a_full_disk_is_named_and_the_last_good_checkpoint_stays_good(place: Place):
    words = r"no space left on the disk of \S+/full/train: \d+ MiB free; last epoch 2 of 4; resume with"
    with pytest.raises(TrainingError, match=words):
        place.train("full", fault="disk")
    assert sum("resume" in line for line in place.said) == 0
    newest = place.folder / "full/train/checkpoints/epoch-0002.pt"
    newest.write_bytes(newest.read_bytes()[:-1000])
    assert place.train("full").epochs == 4
    assert any(line.startswith(f"{newest} is not what was saved") for line in place.said)
    assert [event.first_epoch for event in place.events if isinstance(event, Started)] == [2]
    assert "no space left on the disk" in place.only_run("full").data.tags["passline.resume.1"]
    assert place.epochs("full") == [1, 2, 3, 4]


def test_a_picture_that_cannot_be_read_ends_the_training_with_its_name(place: Place):
    data = place.folder / "cut"
    shutil.copytree(place.folder / "dataset", data)
    content = yaml.safe_load((data / "data.yaml").read_text())
    (data / "data.yaml").write_text(yaml.safe_dump(content | {"path": str(data)}))
    cut, longer = data / "images/train/03.png", data / "images/val/05.png"
    cut.write_bytes(cut.read_bytes()[:40])
    image = cv2.imread(str(longer))
    longer.unlink()
    _, encoded = cv2.imencode(".jpg", image)
    longer.with_suffix(".jpg").write_bytes(encoded.tobytes() + b"trailing")
    with pytest.raises(TrainingError, match="other data than it was given") as ended:
        place.train("picture", data=data / "data.yaml")
    assert "/03.png: left out: ignoring corrupt image/label: " in str(ended.value)
    assert "/05.jpg: rewritten: corrupt JPEG restored and saved" in str(ended.value)
    assert place.only_run("picture").info.status == "FAILED"
    assert metrics_of(place.events) == []


def test_the_process_ends_with_its_parent_and_another_parent_goes_on(place: Place):
    order = {"url": place.url, "folder": str(place.folder), "data": str(place.data_yaml), "config": FOUR_EPOCHS}
    command = [sys.executable, str(PARENT), json.dumps(order)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == "epoch 2\n"
        parent.kill()
    deadline = time.monotonic() + 60
    while is_running(child):
        assert time.monotonic() < deadline, "the training outlived its parent"
        time.sleep(0.1)
    assert place.only_run("orphan").info.status == "RUNNING"
    assert place.train("orphan").epochs == 4
    assert place.epochs("orphan") == [1, 2, 3, 4]
    shown = [event.epoch for event in place.events if isinstance(event, EpochDone)]
    assert shown == [1, 2, 3, 4], "the curves of a training that goes on are whole"
    assert place.only_run("orphan").info.status == "FINISHED"


def test_a_finished_training_is_not_trained_again(place: Place, undisturbed):
    again = place.train("undisturbed")
    assert place.events == []
    assert place.said[0] == "the training is finished: 4 epochs, nothing to resume"
    again.weights.write_bytes(b"torn")
    with pytest.raises(TrainingError, match=r"expected SHA-256 .* this one is finished and has nothing to resume"):
        place.train("undisturbed")
