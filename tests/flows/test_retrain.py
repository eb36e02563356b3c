"""How a retraining ends when something is wrong: in words, and as what it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from data_contracts.errors import JobError, PasslineError, Problem, RegistryError
from flows import retrain as flow_module
from tasks.yolo import TrainingError

PROBLEM = Problem("train.model 'x.pt'", "a weights file", "no such file", "Give the path of a file.")


def ended(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(flow_module, "_retrained", fail)
    monkeypatch.setattr(flow_module, "catch_up_words", lambda: "")
    monkeypatch.setattr(flow_module, "load_site_settings", lambda: SimpleNamespace(runs=tmp_path))
    nothing: Any = None
    return flow_module.retrain.fn(nothing, nothing)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (JobError(PROBLEM), "Failed"),
        (TrainingError(PROBLEM), "Failed"),
        (RegistryError(PROBLEM), "Interrupted"),
    ],
    ids=["a wrong job", "a training that failed", "a system that is away"],
)
def test_the_message_is_the_problem_and_nothing_else(
    error: PasslineError, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = ended(error, tmp_path, monkeypatch)
    assert (end.type.value, end.name, end.message) == ("FAILED", state, str(PROBLEM))


def test_what_nobody_foresaw_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        ended(ZeroDivisionError(), tmp_path, monkeypatch)
