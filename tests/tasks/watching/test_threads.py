"""Watching beside a training: servers that are away, and an end in good time."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from data_contracts.errors import RegistryError
from tasks.training.events import BatchDone, EpochDone, SamplesDrawn, Started
from tasks.watching import recording, showing, watch
from tasks.watching.background import Background
from tasks.watching.recording import Recording
from tasks.watching.seen import Seen
from tasks.watching.showing import Showing
from tasks.watching.watch import watching
from tasks.watching.watch_config import WatchConfig
from training_fakes import FakeRegistry

CONFIG = WatchConfig(progress_every_s=1, curves_every_s=1, sample_epochs=1, sample_pictures=2, metrics_every_s=1)
WAIT_S = 20.0


class Uploads(FakeRegistry):
    """Also takes files."""

    def __init__(self, down: Any = ()) -> None:
        super().__init__(down)
        self.files: list[str] = []

    def log_file(self, run_id: str, file: Path, folder: str | None = None) -> None:
        self.files.append(f"{folder}/{file.name}")


class Shown:
    """Stands for an artifact; `broken` fails."""

    made: dict[str, Shown]
    broken = False

    def __init__(self, key: str, kind: str) -> None:
        self.values: list[Any] = []
        self.texts: list[str] = []
        Shown.made[key] = self

    def show(self, data: Any, description: str) -> None:
        if Shown.broken:
            raise ConnectionError("the server is away")
        self.values.append(data)
        self.texts.append(description)


@pytest.fixture
def artifacts(monkeypatch: pytest.MonkeyPatch) -> type[Shown]:
    Shown.made, Shown.broken = {}, False
    monkeypatch.setattr(showing, "LiveArtifact", Shown)
    return Shown


def epoch(number: int) -> EpochDone:
    return EpochDone(number, 3, {"metrics/mAP50(B)": 0.5}, 1.0)


@pytest.fixture
def no_time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "SHORTEST_S", 0.0)


@pytest.mark.usefixtures("no_time_is_short")
def test_a_training_is_shown_and_recorded(artifacts: type[Shown], tmp_path: Path) -> None:
    registry, said, sheet = Uploads(), [], tmp_path / "epoch-0001.jpg"
    sheet.write_bytes(b"\xff\xd8")
    with watching(registry, "run-0", CONFIG, said.append) as observe:  # type: ignore[arg-type]
        for event in (Started(0, 3, 1), BatchDone(1, 4, 4), epoch(1), SamplesDrawn(1, sheet), epoch(2), epoch(3)):
            observe(event)
    assert artifacts.made["training-progress"].values[-1] == 100.0
    assert artifacts.made["training-progress"].texts[-1] == "finished after epoch 3 of 3"
    assert "![curves]" in artifacts.made["training-curves"].values[-1]
    assert "data:image/jpeg;base64,/9g=" in artifacts.made["training-samples"].values[-1]
    assert registry.files == ["samples/epoch-0001.jpg"]
    names = set(registry.steps[0][1])
    assert names >= {"system/disk_available_megabytes", "system/system_memory_usage_megabytes"}
    assert said == []


def test_an_error_of_the_training_is_shown_and_raised(artifacts: type[Shown]) -> None:
    def failing() -> None:
        with watching(Uploads(), "run-0", CONFIG, print) as observe:  # type: ignore[arg-type]
            observe(Started(0, 3, 1))
            observe(epoch(1))
            raise ZeroDivisionError("by zero\nand more")

    with pytest.raises(ZeroDivisionError):
        failing()
    assert artifacts.made["training-progress"].texts[-1] == "ended after epoch 1 of 3: ZeroDivisionError: by zero"
    assert artifacts.made["training-progress"].values[-1] == pytest.approx(33.3)


@pytest.mark.usefixtures("no_time_is_short")
def test_servers_that_are_away_are_told_once_and_cost_nothing(artifacts: type[Shown]) -> None:
    said: list[str] = []
    artifacts.broken = True
    with watching(Uploads(range(1000)), "run-0", CONFIG, said.append) as observe:  # type: ignore[arg-type]
        observe(Started(0, 3, 1))
        _until(lambda: len(said) == 2)
    assert sorted(words.partition(" failed, the training goes on: ")[0] for words in said) == [
        "recording the machine's load",
        "showing the training in Prefect",
    ]


def test_what_hangs_is_left_to_itself(artifacts: type[Shown], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "GOODBYE_S", 0.2)
    free, said = threading.Event(), []
    monkeypatch.setattr(artifacts, "show", lambda *_: free.wait(WAIT_S))
    with watching(Uploads(), "run-0", CONFIG, said.append) as observe:  # type: ignore[arg-type]
        observe(Started(0, 3, 1))
    free.set()
    assert [words for words in said if "no answer" in words]


@pytest.mark.parametrize(
    ("spacing_s", "curves"),
    [pytest.param(0.0, 3, id="each epoch"), pytest.param(600.0, 2, id="the first and the last")],
)
def test_only_what_changed_is_sent_and_curves_not_too_often(
    spacing_s: float, curves: int, artifacts: type[Shown]
) -> None:
    """Prefect keeps all of every update."""
    seen = Seen()
    shown = Showing(seen, spacing_s)
    for event in (Started(0, 3, 1), BatchDone(1, 1, 4), BatchDone(1, 1, 4), epoch(1), BatchDone(2, 1, 4), epoch(2)):
        seen.observe(event)
        shown.publish()
    seen.end()
    shown.publish()
    shown.publish()
    assert artifacts.made["training-progress"].values == [0.0, 8.3, 33.3, 41.7, 66.7, 100.0]
    drawn = artifacts.made["training-curves"].values
    assert len(drawn) == curves
    assert "| 1 " in drawn[0], "curves of an earlier process stay until there are new ones"


def test_what_could_not_be_sent_is_sent_later(artifacts: type[Shown], tmp_path: Path) -> None:
    seen = Seen()
    shown = Showing(seen, 600.0)
    (tmp_path / "1.jpg").write_bytes(b"x")
    for event in (Started(0, 3, 1), epoch(1), SamplesDrawn(1, tmp_path / "1.jpg")):
        seen.observe(event)
    artifacts.broken = True
    with pytest.raises(ConnectionError):
        shown.publish()
    artifacts.broken = False
    shown.publish()
    assert {key: len(one.values) for key, one in artifacts.made.items()} == {
        "training-progress": 1,
        "training-curves": 1,
        "training-samples": 1,
    }


def test_a_sheet_that_was_removed_stops_nothing(artifacts: type[Shown], tmp_path: Path) -> None:
    seen = Seen()
    seen.observe(SamplesDrawn(1, tmp_path / "gone.jpg"))
    Showing(seen, 0.0).publish()
    assert artifacts.made["training-samples"].values == []


@pytest.mark.usefixtures("no_time_is_short")
def test_samples_of_an_outage_arrive_later() -> None:
    registry = Uploads(down=[1, 2])
    record = Recording(Seen(), registry, "run-0")  # type: ignore[arg-type]
    record.record()
    record.record()
    for _ in range(2):
        with pytest.raises(RegistryError):
            record.record()
    record.record()
    assert [step for step, _ in registry.steps] == [0, 1, 2, 3]


@pytest.mark.usefixtures("no_time_is_short")
def test_an_outage_keeps_no_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "WAITING_MOST", 3)
    registry = Uploads(down=range(5))
    record = Recording(Seen(), registry, "run-0")  # type: ignore[arg-type]
    record.record()
    for _ in range(5):
        with pytest.raises(RegistryError):
            record.record()
    record.record()
    assert [step for step, _ in registry.steps] == [3, 4, 5]


def test_a_moment_is_no_sample_but_what_waits_is_sent() -> None:
    registry = Uploads(down=[0])
    record = Recording(Seen(), registry, "run-0")  # type: ignore[arg-type]
    record.record()
    record.record()
    assert registry.steps == []
    record._log.add(7, {"a": 1.0})
    record.record()
    assert registry.steps == [(7, {"a": 1.0})]


@pytest.mark.usefixtures("no_time_is_short")
def test_sheets_of_an_outage_arrive_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, registry = Seen(), Uploads()
    for number in (1, 2):
        (tmp_path / f"{number}.jpg").write_bytes(b"x")
        seen.observe(SamplesDrawn(number, tmp_path / f"{number}.jpg"))
    seen.observe(SamplesDrawn(3, tmp_path / "gone.jpg"))
    record = Recording(seen, registry, "run-0")  # type: ignore[arg-type]

    def refuse(*_: Any) -> None:
        raise RegistryError("the server is away")

    with monkeypatch.context() as away:
        away.setattr(registry, "log_file", refuse)
        with pytest.raises(RegistryError):
            record.record()
    record.record()
    record.record()
    assert registry.files == ["samples/1.jpg", "samples/2.jpg"]
    assert seen.view().unsent == ()


def test_work_is_done_at_once_and_once_more_at_the_end() -> None:
    done: list[int] = []
    background = Background("work", lambda: done.append(1), 600.0, print)
    _until(lambda: len(done) == 1)
    background.close(WAIT_S)
    assert len(done) == 2


def _until(holds: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
