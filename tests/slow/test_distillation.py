"""A small model really learns from a larger one, through the training step, and holds nothing of it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from coloured_squares import NAMES, without_class, write_coloured_squares
from data_contracts.errors import JobError
from serving.bundle import hash_file
from tasks import yolo
from tasks.export import ExportConfig, export
from tasks.splits import SplitConfig
from tasks.train import Surroundings, TrainConfig, TrainedModel, train
from tasks.training.recovery import RecoveryConfig
from tasks.working_copy import split_and_copy
from training_fakes import ORIGIN, TRAIN, FakeRegistry

JOB: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "params.yaml").read_text("utf-8"))["job"]
SIDE = 64
TEACHER_PARAMETERS = 3_000_000


class Kept(FakeRegistry):
    """Takes what a whole training logs."""

    def log_params(self, run_id: str, params: Mapping[str, object]) -> None:
        self.params = params

    def log_folder(self, run_id: str, folder: Path) -> None:
        self.folder = sorted(path.name for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class Taught:
    """A finished distillation."""

    teacher: Path
    student: TrainedModel
    registry: Kept
    home: Path


def trained(folder: Path, name: str, registry: Kept, dataset: Path, **changes: Any) -> TrainedModel:
    """Trained by the step of `retrain`."""
    splits = SplitConfig(**(JOB["splits"] | {"near_duplicates": False}))
    copy = split_and_copy(dataset, splits, folder / f"{name}-working")
    config = TrainConfig(**(TRAIN | {"imgsz": SIDE, "epochs": 1} | changes))
    around = Surroundings(RecoveryConfig(**JOB["recovery"]))
    home = folder / "home"
    return train(config, copy.data_yaml, folder / name, registry, ORIGIN, home, print, around)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Taught:
    folder = tmp_path_factory.mktemp("distillation")
    write_coloured_squares(folder / "dataset", {"train": 12, "val": 6, "test": 6})
    teacher = trained(folder, "teacher", Kept(), folder / "dataset", model="yolov8n.yaml")
    (folder / "home" / "weights").mkdir(parents=True, exist_ok=True)
    place = folder / "home" / "weights" / "large.pt"
    place.write_bytes(teacher.weights.read_bytes())
    registry = Kept()
    student = trained(folder, "student", registry, folder / "dataset", teacher="large.pt", epochs=2)
    return Taught(place, student, registry, folder / "home")


def test_the_student_was_pulled_towards_its_teacher(taught):
    pulls = [metrics["train/dis_loss"] for _, metrics in taught.registry.steps]
    assert len(pulls) == 2
    assert all(pull > 0 for pull in pulls)


def test_the_run_names_its_teacher(taught):
    (tags,) = taught.registry.tags.values()
    assert tags["passline.teacher.sha256"] == hash_file(taught.teacher).sha256
    assert taught.registry.params["teacher"] == "large.pt"


def test_nothing_of_the_teacher_is_left_in_the_student(taught):
    import torch

    model = torch.load(taught.student.weights, weights_only=False)["model"]
    names = list(model.state_dict())
    assert not [name for name in names if "teacher" in name or "projector" in name]
    assert sum(one.numel() for one in model.parameters()) < TEACHER_PARAMETERS / 3
    assert not [hook for layer in model.model for hook in layer._forward_hooks.values()]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, of the exporter that Ultralytics uses
def test_the_student_exports_and_answers_as_in_torch(taught, tmp_path):
    yolo.configure_ultralytics(taught.home)
    exported = export(taught.student.weights, SIDE, tmp_path, ExportConfig(**JOB["export"]))
    assert exported.spec.class_names == NAMES


def test_a_teacher_of_other_classes_is_refused_before_a_run_exists(taught, tmp_path):
    write_coloured_squares(tmp_path / "dataset", {"train": 12, "val": 6, "test": 6})
    without_class(tmp_path / "dataset")
    registry = Kept()
    with pytest.raises(JobError, match=r"classes of train\.teacher .*lacks none, has yellow more"):
        trained(tmp_path, "other", registry, tmp_path / "dataset", teacher=str(taught.teacher))
    assert registry.runs == {}
