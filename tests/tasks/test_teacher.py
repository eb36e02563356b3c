from __future__ import annotations

from pathlib import Path

import pytest

from data_contracts.errors import JobError, Problem
from tasks import yolo
from tasks.teacher import check_classes, check_teacher, distill_arguments, find_teacher, teacher_tags


@pytest.fixture
def data_yaml(tmp_path: Path) -> Path:
    file = tmp_path / "data.yaml"
    file.write_text("names: {0: scratch, 1: pit}\n", "utf-8")
    return file


@pytest.fixture
def weights_home(tmp_path: Path) -> Path:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "large.pt").write_bytes(b"weights")
    return tmp_path / "weights"


@pytest.mark.parametrize(
    ("teacher", "allow_download", "missing"),
    [
        pytest.param(None, False, False, id="no teacher"),
        pytest.param("large.pt", False, False, id="by name among the weights"),
        pytest.param("other.pt", False, True, id="not here"),
        pytest.param("other.pt", True, False, id="may be fetched"),
        pytest.param("yolov8n.yaml", True, True, id="an architecture has learnt nothing"),
        pytest.param("large.onnx", True, True, id="an exported model"),
    ],
)
def test_a_missing_teacher_is_told_before_anything_is_loaded(weights_home, teacher, allow_download, missing):
    problems = list(check_teacher(teacher, weights_home, allow_download=allow_download))
    assert bool(problems) == missing
    assert all(problem.subject == f"train.teacher {teacher!r}" for problem in problems)


def test_a_teacher_elsewhere_is_found_by_its_path(weights_home, tmp_path):
    place = weights_home / "large.pt"
    assert list(check_teacher(str(place), tmp_path / "none", allow_download=False)) == []


@pytest.mark.parametrize(
    ("known", "got"),
    [
        pytest.param(["scratch", "pit"], None, id="the same"),
        pytest.param(["pit", "scratch"], None, id="in another order"),
        pytest.param(["scratch"], "lacks pit, has none more", id="one less"),
        pytest.param(["scratch", "pit", "dent"], "lacks none, has dent more", id="one more"),
        pytest.param(
            ["bus", "car", "cat", "cow", "cup", "dog", "van"],
            "lacks pit, scratch, has bus, car, cat, cow, cup and 2 others more",
            id="published weights",
        ),
    ],
)
def test_the_teacher_knows_the_classes_of_the_dataset(known, got):
    problems = list(check_classes(known, ["scratch", "pit"], "large.pt"))
    assert [problem.got for problem in problems] == ([] if got is None else [got])
    assert all(problem.subject == "classes of train.teacher 'large.pt'" for problem in problems)


def test_the_teacher_of_a_job(weights_home, data_yaml, monkeypatch):
    monkeypatch.setattr(yolo, "weights_class_names", lambda _: ("pit", "scratch"))
    teacher = find_teacher("large.pt", data_yaml, weights_home, allow_download=False)
    assert teacher is not None
    assert distill_arguments(teacher) == {"distill_model": str(weights_home / "large.pt")}
    assert teacher_tags(teacher) == {"passline.teacher.sha256": teacher.sha256}
    assert len(teacher.sha256) == 64


def test_without_a_teacher_nothing_changes(weights_home, data_yaml):
    assert find_teacher(None, data_yaml, weights_home, allow_download=False) is None
    assert distill_arguments(None) == {}
    assert teacher_tags(None) == {}


def test_a_teacher_of_other_classes_is_refused(weights_home, data_yaml, monkeypatch):
    monkeypatch.setattr(yolo, "weights_class_names", lambda _: ("car", "bus"))
    with pytest.raises(JobError, match="Train the teacher on this dataset first"):
        find_teacher("large.pt", data_yaml, weights_home, allow_download=False)


def test_a_teacher_that_cannot_be_fetched_is_named_as_such(weights_home, data_yaml, monkeypatch):
    def refuse(model: str, home: Path, *, allow_download: bool) -> Path:
        raise JobError(Problem(f"train.model {model!r}", "weights that can be fetched", "offline", "Put it there."))

    monkeypatch.setattr(yolo, "resolve_model", refuse)
    with pytest.raises(JobError, match=r"^train\.teacher 'other\.pt': expected weights that can be fetched"):
        find_teacher("other.pt", data_yaml, weights_home, allow_download=True)
