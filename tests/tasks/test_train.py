from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from data_contracts.errors import JobError, RegistryError
from tasks.model_files import find_model
from tasks.registry import MetricLog
from tasks.run_log import current_logger
from tasks.train import Surroundings, TrainConfig, train, train_arguments
from tasks.training.events import EpochDone
from tasks.training.mlflow_run import run_tags, tracked_run
from tasks.training.recovery import RecoveryConfig
from tasks.training.tracking import EpochReporter, epoch_line, patiently
from tasks.yolo import resolve_model
from training_fakes import ORIGIN, PIN, TRAIN, FakeRegistry


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        pytest.param({"optimizer": "auto"}, "optimizer", "ignores lr0", id="auto"),
        pytest.param({"optimizer": "Lion"}, "optimizer", "AdamW", id="unknown optimiser"),
        pytest.param({"epochs": 0}, "epochs", "greater than or equal to 1", id="no epochs"),
        pytest.param({"epohs": 5}, "epohs", "Extra inputs are not permitted", id="misspelt"),
        pytest.param({"imgsz": 100}, "imgsz", "multiple of 32", id="odd size"),
        pytest.param({"lr0": 1.5}, "lr0", "less than or equal to 0.1", id="learning rate too high"),
        pytest.param({"lr0": math.nan}, "lr0", "finite number", id="learning rate not a number"),
        pytest.param({"device": "0,1"}, "device", "pattern", id="two devices"),
        pytest.param({"mosaic": 1.2}, "mosaic", "less than or equal to 1", id="share over one"),
    ],
)
def test_a_wrong_field_is_refused_by_name(changes, field, words):
    with pytest.raises(ValidationError) as refused:
        TrainConfig(**(TRAIN | changes))
    assert [error["loc"][0] for error in refused.value.errors()] == [field]
    assert words in str(refused.value)


def test_no_field_has_a_default_or_lacks_a_description():
    for name, field in TrainConfig.model_fields.items():
        assert field.is_required(), name
        assert field.description, name


def test_arguments_are_those_of_yolo_train():
    arguments = train_arguments(TrainConfig(**TRAIN))
    assert {"model", "allow_download"}.isdisjoint(arguments)
    assert (arguments["imgsz"], arguments["lr0"], arguments["cache"], arguments["plots"]) == (64, 0.004, False, True)
    assert arguments["patience"] == 1, "0 must not mean to stop at once"


@pytest.mark.parametrize(
    ("model", "found"),
    [
        pytest.param("pico.yaml", "pico.yaml", id="our own"),
        pytest.param("yolov8n.yaml", "yolov8n.yaml", id="one that Ultralytics brings, with its scale"),
        pytest.param("yolo11n.yaml", "yolo11n.yaml", id="another family"),
        pytest.param("mine.pt", "mine.pt", id="weights put into the folder"),
        pytest.param("yolov8n.pt", None, id="weights that are not here"),
        pytest.param("nothing.yaml", None, id="no such architecture"),
        pytest.param("yolov8n", None, id="no kind"),
    ],
)
def test_a_model_is_found_by_name(tmp_path: Path, model: str, found: str | None):
    (tmp_path / "mine.pt").write_bytes(b"weights")
    path = find_model(model, tmp_path)
    assert (path and path.name) == found


def test_a_missing_model_is_refused_with_what_to_do(tmp_path: Path):
    with pytest.raises(JobError, match=r"train.model 'yolov8n.pt'.*no such file.*train.allow_download"):
        resolve_model("yolov8n.pt", tmp_path, allow_download=False)


def test_a_run_is_finished_when_all_went_well():
    registry = FakeRegistry()
    with tracked_run(registry, ORIGIN) as run_id:
        assert registry.runs[run_id] == "RUNNING"
    assert registry.runs == {"run-0": "FINISHED"}
    assert registry.tags["run-0"]["passline.dataset.hash"] == PIN.dvc_hash
    assert registry.tags["run-0"]["passline.flow_run_id"] == "flow-1"


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt(), SystemExit(1)])
def test_a_run_is_failed_when_training_raises(error: BaseException):
    registry = FakeRegistry()
    with pytest.raises(type(error)), tracked_run(registry, ORIGIN):
        raise error
    assert registry.runs == {"run-0": "FAILED"}


def test_an_unreachable_server_does_not_hide_why_training_failed():
    class Gone(FakeRegistry):
        def finish_run(self, run_id: str, status: str) -> None:
            raise RegistryError("the server is away")

    with pytest.raises(ValueError, match="the reason") as raised, tracked_run(Gone(), ORIGIN):
        raise ValueError("the reason")
    assert "could not be closed: the server is away" in raised.value.__notes__[0]


def test_epochs_are_told_and_logged_at_their_step():
    registry, said = FakeRegistry(), []
    report = EpochReporter(MetricLog(registry, "run-0"), said.append)
    report(EpochDone(1, 2, {"metrics/mAP50(B)": 0.5, "train/box_loss": math.nan}, 2.0))
    report(EpochDone(2, 2, {"metrics/mAP50(B)": 0.6}, 1.0))
    assert registry.steps == [
        (1, {"metrics/mAP50(B)": 0.5, "seconds/epoch": 2.0}),
        (2, {"metrics/mAP50(B)": 0.6, "seconds/epoch": 1.0}),
    ]
    assert said[0] == "epoch 1/2: mAP50 0.500, box loss nan, 2.0 s, about 2 s left"
    assert said[1] == "epoch 1: no number for train/box_loss"


def test_metrics_wait_while_the_server_is_away_and_none_is_lost():
    registry, said = FakeRegistry(down=[0, 1]), []
    log = MetricLog(registry, "run-0")
    report = EpochReporter(log, said.append)
    for epoch in (1, 2, 3):
        report(EpochDone(epoch, 3, {"x": float(epoch)}, 1.0))
    log.close()
    assert [step for step, _ in registry.steps] == [1, 2, 3]
    assert sum("metrics wait" in line for line in said) == 2


def test_the_end_of_training_does_not_pass_with_metrics_that_were_not_sent():
    log = MetricLog(FakeRegistry(down=range(9)), "run-0")
    assert isinstance(log.add(1, {"x": 1.0}), RegistryError)
    with pytest.raises(RegistryError, match="away"):
        log.close()


@pytest.mark.parametrize(("failures", "raises"), [(0, False), (2, False), (3, True)])
def test_patience_has_an_end(failures: int, raises: bool):
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        if len(calls) <= failures:
            raise RegistryError("away")

    def run() -> None:
        patiently(call, lambda _: None, waits_s=(0.0, 0.0))

    if raises:
        with pytest.raises(RegistryError):
            run()
    else:
        run()
    assert len(calls) == min(failures, 2) + 1


def test_an_existing_folder_is_refused_before_a_run_exists(tmp_path: Path):
    registry = FakeRegistry()
    around = Surroundings(RecoveryConfig(max_resumes=0, nan_lr_factor=0.5, start_s=1, stuck_s=1))
    with pytest.raises(JobError, match="training folder: expected a new one, or one to go on with"):
        train(TrainConfig(**TRAIN), tmp_path / "data.yaml", tmp_path, registry, ORIGIN, tmp_path, print, around)  # type: ignore[arg-type]
    assert registry.runs == {}


def test_outside_a_run_there_is_a_plain_logger():
    assert isinstance(current_logger(), logging.Logger)


def test_the_line_says_how_long_it_takes():
    assert epoch_line(3, 10, {"metrics/mAP50(B)": 0.5}, 2.0) == "epoch 3/10: mAP50 0.500, 2.0 s, about 14 s left"


def test_tags_name_code_and_libraries():
    tags = run_tags(ORIGIN)
    assert tags["passline.code.dirty"] in ("true", "false")
    assert tags["passline.code.commit"]
    assert "passline.version.torch" in tags
