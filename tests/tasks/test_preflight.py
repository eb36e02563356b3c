from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_contracts.dataset import DatasetRef
from data_contracts.errors import JobError, Problem, RegistryError
from tasks.devices import Gpu, check_devices
from tasks.preflight import (
    check_artifacts,
    check_code,
    check_disk,
    check_location,
    check_model,
    collect,
    look_ahead,
)
from tasks.provenance import CodeRevision
from tasks.train import TrainConfig
from training_fakes import PREFLIGHT, RESOURCES, TRAIN, ahead

WEIGHTS = TrainConfig(**(TRAIN | {"model": "yolov8n.pt"}))


class Artifacts:
    """An artifact store; `answer` is what comes back instead of what was sent."""

    url = "http://127.0.0.1:5000"

    def __init__(self, location: str = "mlflow-artifacts:/1", answer: str | None = None, down: bool = False) -> None:
        self.location, self.answer, self.down, self.sent = location, answer, down, 0

    def artifact_location(self, experiment: str) -> str:
        return self.location

    def send_and_fetch(self, experiment: str, file: Path, back: Path) -> Path:
        if self.down:
            raise RegistryError(
                Problem("MLflow at http://127.0.0.1:5000", "an artifact", "permission denied", "Mend it.")
            )
        self.sent += 1
        back.mkdir()
        (back / file.name).write_text(file.read_text() if self.answer is None else self.answer)
        return back / file.name


def words(problems: Iterator[Problem]) -> str:
    return "\n".join(map(str, problems))


@pytest.mark.parametrize(
    ("url", "location", "refused"),
    [
        pytest.param("http://127.0.0.1:5000", "mlflow-artifacts:/1", False, id="served"),
        pytest.param("http://127.0.0.1:5000", "s3://bucket/1", False, id="object store"),
        pytest.param("http://127.0.0.1:5000", "/srv/mlruns/1", True, id="folder of the server"),
        pytest.param("https://mlflow.example", "file:///srv/mlruns/1", True, id="file URL"),
        pytest.param("sqlite:///mlflow.db", "/srv/mlruns/1", False, id="no server between"),
    ],
)
def test_a_folder_behind_an_http_address_is_refused(url: str, location: str, refused: bool):
    assert bool(list(check_location(url, location))) == refused


def test_a_folder_is_refused_before_anything_is_sent():
    registry = Artifacts("/srv/mlruns/1")
    assert "--serve-artifacts" in words(check_artifacts(registry, "plates"))  # type: ignore[arg-type]
    assert registry.sent == 0


def test_what_comes_back_must_be_what_was_sent():
    assert words(check_artifacts(Artifacts(), "plates")) == ""  # type: ignore[arg-type]
    assert "Check the artifact store" in words(check_artifacts(Artifacts(answer="x"), "plates"))  # type: ignore[arg-type]


def test_disk_space_is_asked_where_the_folder_will_be(tmp_path: Path):
    assert words(check_disk(tmp_path / "not" / "yet", 1)) == ""
    assert "MiB free, got" in words(check_disk(tmp_path / "not" / "yet", 10**9))


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        pytest.param({"model": "pico.yaml"}, False, id="there"),
        pytest.param({"model": "yolov8n.pt"}, True, id="not there"),
        pytest.param({"model": "yolov8n.pt", "allow_download": True}, False, id="may be fetched"),
        pytest.param({"model": "nothing.yaml", "allow_download": True}, True, id="an architecture is never fetched"),
    ],
)
def test_the_model_is_there_or_may_be_fetched(tmp_path: Path, changes, missing: bool):
    assert bool(list(check_model(TrainConfig(**(TRAIN | changes)), tmp_path))) == missing


@pytest.mark.parametrize(
    ("case", "wanted", "installed", "words"),
    [
        ("any", None, CodeRevision("a" * 40, dirty=True), ""),
        ("this one", "aaaaaaa", CodeRevision("a" * 40, dirty=False), ""),
        ("another", "bbbbbbb", CodeRevision("a" * 40, dirty=False), "expected bbbbbbb, got aaaa"),
        ("altered", "aaaaaaa", CodeRevision("a" * 40, dirty=True), "with uncommitted changes"),
        ("a package", "aaaaaaa", CodeRevision("package-1.0", dirty=False), "got package-1.0"),
    ],
)
def test_the_code_is_what_the_job_asks_for(case: str, wanted: str | None, installed: CodeRevision, words: str):
    found = "".join(map(str, check_code(wanted, installed)))
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("case", "needs", "gpus", "words"),
    [
        ("none wished", {}, (), ""),
        ("there", {"devices": 1, "device_memory_mib": 8000}, (Gpu("A", 8000),), ""),
        ("none there", {"devices": 1}, (), "1 that torch can use, got 0 (none)"),
        ("too few", {"devices": 2}, (Gpu("A", 8000),), "got 1 (A)"),
        ("too small", {"devices": 2, "device_memory_mib": 9000}, (Gpu("A", 9000), Gpu("B", 8000)), "8000 MiB (B)"),
    ],
)
def test_the_devices_are_those_that_the_job_declares(case: str, needs: dict[str, int], gpus: tuple[Gpu, ...], words):
    found = "".join(map(str, check_devices(RESOURCES.model_copy(update=needs), lambda: gpus)))
    assert words in found
    assert bool(found) == bool(words)


def test_all_that_is_missing_is_told_at_once(tmp_path: Path):
    repository = DatasetRef(repository="no/such/folder")
    missing = ahead(tmp_path, dataset=repository, train=WEIGHTS, code_revision="b" * 40)
    with pytest.raises(JobError) as refused:
        look_ahead(Artifacts(down=True), missing, PREFLIGHT)  # type: ignore[arg-type]
    message = str(refused.value)
    for part in ("permission denied", "yolov8n.pt", "no/such/folder", "job.code_revision"):
        assert part in message
    assert len(refused.value.problems) == 4


def test_a_teacher_that_is_not_here_is_named(tmp_path: Path):
    train = TrainConfig(**(TRAIN | {"teacher": "large.pt"}))
    with pytest.raises(JobError, match=r"train\.teacher 'large\.pt'"):
        look_ahead(Artifacts(), ahead(tmp_path, train=train), PREFLIGHT)  # type: ignore[arg-type]


def test_facts_when_all_is_there(tmp_path: Path):
    facts = look_ahead(Artifacts(), ahead(tmp_path), PREFLIGHT)  # type: ignore[arg-type]
    assert (facts.artifact_location, facts.model) == ("mlflow-artifacts:/1", "pico.yaml")


def test_what_does_not_answer_in_time_is_named_and_the_rest_is_still_told():
    over = threading.Event()

    def hanging() -> Iterator[Problem]:
        over.wait(30)
        return iter(())

    found = collect({"MLflow": hanging, "disk": lambda: ["full"]}, limit_s=0.2)
    over.set()
    assert [str(one) for one in found] == [
        "MLflow: expected an answer within 0.2 s, got none. Check that it runs and that this machine reaches it.",
        "full",
    ]


def test_an_unforeseen_error_is_not_taken_for_a_finding():
    def broken() -> Iterator[Problem]:
        raise ZeroDivisionError
        yield

    with pytest.raises(ZeroDivisionError):
        collect({"disk": broken}, limit_s=30)
