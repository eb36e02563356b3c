"""Commands of the training side while the Prefect server is away: words, no traceback."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from data_contracts.errors import OutsideSystemError
from deployments import cli, cli_resume, cli_training, deploy, follow
from tasks import resuming, settings

ROOT = Path(__file__).parents[2]


def away(*_: Any) -> Any:
    raise httpx.ConnectError("[Errno 111] Connection refused")


@pytest.mark.parametrize(
    "arguments", [("submit", "job.yaml"), ("resume", "8eda03a4-9a33-4d6f-919a-ef2adb7d98c2"), ("deploy",)], ids=" ".join
)
def test_a_server_that_is_away_is_told_in_words(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.yaml").write_text("priority: 1\n")
    monkeypatch.chdir(tmp_path)
    site = SimpleNamespace(project=ROOT, prefect_url="http://127.0.0.1:1", runs=tmp_path)
    for module in (cli_training, cli_resume):
        monkeypatch.setattr(module, "enter_training_side", lambda: site)
    monkeypatch.setattr(settings, "load_site_settings", lambda: site)
    for module, name in ((follow, "start_retrain"), (resuming, "resume_run"), (deploy, "deploy")):
        monkeypatch.setattr(module, name, away)
    ended = CliRunner().invoke(cli.app, list(arguments))
    assert isinstance(ended.exception, OutsideSystemError)
    assert str(ended.exception).startswith(
        "Prefect server: expected an answer, got [Errno 111] Connection refused. Run"
    )
