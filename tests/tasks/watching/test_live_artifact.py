"""An artifact that changes in place, on a stand-in for Prefect's server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.exceptions import ObjectNotFound

from tasks.artifacts import LiveArtifact

TASK_RUN, FLOW_RUN, OTHER_RUN = uuid4(), uuid4(), uuid4()


class Server:
    """Keeps artifacts; stands for the client too."""

    def __init__(self) -> None:
        self.kept: dict[UUID, Any] = {}

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: Any) -> None:
        """Nothing to close."""

    def read_artifacts(self, artifact_filter: Any) -> list[Any]:
        runs, keys = artifact_filter.flow_run_id.any_, artifact_filter.key.any_
        return [one for one in self.kept.values() if one.flow_run_id in runs and one.key in keys]

    def create_artifact(self, artifact: Any) -> Any:
        made = SimpleNamespace(id=uuid4(), **artifact.model_dump())
        self.kept[made.id] = made
        return made

    def update_artifact(self, artifact_id: UUID, artifact: Any) -> None:
        if artifact_id not in self.kept:
            raise ObjectNotFound(ValueError("gone"))
        self.kept[artifact_id].data, self.kept[artifact_id].description = artifact.data, artifact.description

    def all(self) -> list[tuple[str, Any, str]]:
        return [(one.key, one.data, one.description) for one in self.kept.values()]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: made)
    within(monkeypatch, FLOW_RUN)
    return made


def within(monkeypatch: pytest.MonkeyPatch, flow_run: UUID | None) -> None:
    """Have what follows run in a flow run."""
    ids = (TASK_RUN if flow_run else None, flow_run)
    monkeypatch.setattr("prefect.utilities.context.get_task_and_flow_run_ids", lambda: ids)


def test_it_is_made_once_and_then_replaced(server: Server) -> None:
    artifact = LiveArtifact("curves", "markdown")
    assert server.all() == []
    for number in (1, 2, 3):
        artifact.show(f"text {number}", f"words {number}")
    assert server.all() == [("curves", "text 3", "words 3")]
    (kept,) = server.kept.values()
    assert (kept.type, kept.flow_run_id, kept.task_run_id) == ("markdown", FLOW_RUN, TASK_RUN)


def test_another_process_of_the_run_goes_on_with_it(server: Server) -> None:
    LiveArtifact("bar", "progress").show(10.0, "begun")
    LiveArtifact("bar", "progress").show(20.0, "brought back")
    assert server.all() == [("bar", 20.0, "brought back")]


def test_other_keys_and_runs_have_their_own(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    LiveArtifact("bar", "progress").show(10.0, "ours")
    LiveArtifact("curves", "markdown").show("text", "ours")
    within(monkeypatch, OTHER_RUN)
    LiveArtifact("bar", "progress").show(5.0, "theirs")
    assert server.all() == [("bar", 10.0, "ours"), ("curves", "text", "ours"), ("bar", 5.0, "theirs")]


def test_one_that_was_deleted_is_made_again(server: Server) -> None:
    artifact = LiveArtifact("bar", "progress")
    artifact.show(10.0, "a")
    server.kept.clear()
    artifact.show(20.0, "b")
    artifact.show(30.0, "c")
    assert server.all() == [("bar", 30.0, "c")]


def test_without_a_run_nothing_is_shown(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    within(monkeypatch, None)
    LiveArtifact("bar", "progress").show(10.0, "a")
    assert server.all() == []
