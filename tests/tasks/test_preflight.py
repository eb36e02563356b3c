from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from data_contracts.errors import JobError, Problem, RegistryError
from tasks.preflight import (
    PreflightConfig,
    check_artifacts,
    check_disk,
    check_location,
    check_model,
    check_repository,
    collect,
    look_ahead,
)
from tasks.train import TrainConfig
from training_fakes import TRAIN

CONFIG = PreflightConfig(min_free_mib=1)
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
    ("repository", "missing"),
    [
        pytest.param(".", False, id="folder"),
        pytest.param("no/such/folder", True, id="no folder"),
        pytest.param("https://git.example/data.git", False, id="URL"),
        pytest.param("git@git.example:data.git", False, id="ssh"),
    ],
)
def test_the_dataset_repository(repository: str, missing: bool):
    assert bool(list(check_repository(repository))) == missing


def test_all_that_is_missing_is_told_at_once(tmp_path: Path):
    with pytest.raises(JobError) as refused:
        look_ahead(Artifacts(down=True), "plates", "no/such/folder", WEIGHTS, tmp_path, CONFIG)  # type: ignore[arg-type]
    message = str(refused.value)
    for part in ("permission denied", "yolov8n.pt", "no/such/folder"):
        assert part in message
    assert len(refused.value.problems) == 3


def test_facts_when_all_is_there(tmp_path: Path):
    facts = look_ahead(Artifacts(), "plates", str(tmp_path), TrainConfig(**TRAIN), tmp_path, CONFIG)  # type: ignore[arg-type]
    assert (facts.artifact_location, facts.model) == ("mlflow-artifacts:/1", "pico.yaml")


def test_an_unforeseen_error_is_not_taken_for_a_finding():
    def broken() -> Iterator[Problem]:
        raise ZeroDivisionError
        yield

    with pytest.raises(ZeroDivisionError):
        collect([broken])
