"""The local stack: its configuration, and what it says when something is in the way."""

from __future__ import annotations

import configparser
import json
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from data_contracts.errors import InvalidInput
from deployments.environment import StackSettings, load_stack_settings
from deployments.own_stack import free_ports
from deployments.ports import port_problem
from deployments.programs import MARK, host_environment, render_config, socket_path, stack_programs
from deployments.stack import Stack, end_orphans

ROOT = Path(__file__).parents[2]


def settings(home: Path, **changes: object) -> StackSettings:
    prefect, mlflow, service = free_ports(3)
    python = Path(sys.executable)
    made = StackSettings(
        project=ROOT,
        home=home,
        prefect_port=prefect,
        mlflow_port=mlflow,
        service_port=service,
        training_python=python,
        inference_python=python,
        serving_python=python,
    )
    return made.model_copy(update=changes)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def read_config(home: Path) -> configparser.ConfigParser:
    s = settings(home)
    folder = home / "supervisor"
    text = render_config(s, folder, socket_path(folder), stack_programs(s, socket_path(folder)))
    config = configparser.ConfigParser(interpolation=configparser.BasicInterpolation())
    config.read_string(text)
    return config


@pytest.mark.parametrize("name", ["plain", "with space", "100%", "ümlaut"])
def test_every_path_is_readable_in_the_configuration(name: str, tmp_path: Path) -> None:
    config = read_config(tmp_path / name)
    assert str(tmp_path / name) in config["program:service"]["environment"]
    assert str(tmp_path / name / "log" / "service.log") == config["program:service"]["stdout_logfile"]


def test_the_two_sides_get_different_environments(tmp_path: Path) -> None:
    config = read_config(tmp_path)
    service, training = (config[f"program:{name}"]["environment"] for name in ("service", "training-worker"))
    assert "PREFECT_API_URL" not in service
    assert "MLFLOW_TRACKING_URI" not in service
    assert "PASSLINE_HOST_ENV" not in training
    assert "SUPERVISOR" not in training
    assert all(
        MARK in config[section]["environment"] for section in config.sections() if section.startswith("program:")
    )


def test_the_callers_path_does_not_change_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = settings(tmp_path)
    folder = tmp_path / "supervisor"

    def render() -> str:
        return render_config(before, folder, socket_path(folder), stack_programs(before, socket_path(folder)))

    first = render()
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tmp_path}")
    assert render() == first


def test_a_deep_folder_gets_a_socket_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90) / "supervisor"
    assert len(os.fsencode(socket_path(deep))) < 108
    assert socket_path(deep) == socket_path(deep)
    assert socket_path(tmp_path) == tmp_path / "supervisor.sock"


def test_host_settings_of_the_shell_reach_the_host(tmp_path: Path) -> None:
    text = host_environment(settings(tmp_path), {"PASSLINE_MAX_BATCH": "4", "PASSLINE_HOME": "x", "OTHER": "y"})
    assert "PASSLINE_MAX_BATCH=4\n" in text
    assert f"PASSLINE_STORE={tmp_path}/host\n" in text
    assert "OTHER" not in text
    assert "PASSLINE_HOME" not in text


def test_a_taken_port_is_named_with_its_owner_and_the_way_out(taken: int) -> None:
    problem = port_problem("MLFLOW", taken)
    assert problem is not None
    assert f"port {taken} for mlflow" in str(problem)
    assert f"pid {os.getpid()}" in str(problem)
    assert "PASSLINE_MLFLOW_PORT" in str(problem)


def test_a_taken_port_stops_the_start_before_anything_runs(taken: int, tmp_path: Path) -> None:
    stack = Stack(settings(tmp_path, service_port=taken))
    with pytest.raises(InvalidInput, match="PASSLINE_SERVICE_PORT"):
        stack.up(print)
    assert not stack.running()


def test_a_missing_environment_is_named(tmp_path: Path) -> None:
    stack = Stack(settings(tmp_path, serving_python=tmp_path / "none" / "python"))
    with pytest.raises(InvalidInput, match=r"none/python.*make setup"):
        stack.up(print)


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1", ""])
def test_a_wrong_port_is_named(port: str) -> None:
    with pytest.raises(InvalidInput, match="PASSLINE_PREFECT_PORT"):
        load_stack_settings({"PASSLINE_PREFECT_PORT": port, "PASSLINE_PROJECT": str(ROOT)})


def test_a_folder_without_the_project_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="PASSLINE_PROJECT"):
        load_stack_settings({"PASSLINE_PROJECT": str(tmp_path)})


class PrefectApi(BaseHTTPRequestHandler):
    """Answers the two calls of `end_orphans` and keeps what it was sent."""

    calls: ClassVar[list[tuple[str, dict[str, Any]]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.calls.append((self.path, body))
        runs = [{"id": "11", "name": "merry-crab"}] if self.path.endswith("/filter") else {}
        answer = json.dumps(runs).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def test_runs_cut_off_by_an_earlier_stop_are_marked_as_crashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrefectApi, "calls", [])
    said: list[str] = []
    started_at = datetime(2026, 12, 1, 4, tzinfo=UTC)
    with HTTPServer(("127.0.0.1", 0), PrefectApi) as server, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(server.serve_forever, poll_interval=0.01)
        end_orphans(f"http://127.0.0.1:{server.server_port}", started_at, said.append)
        server.shutdown()
        serving.result()
    (_, asked), (path, told) = PrefectApi.calls
    assert asked["flow_runs"]["expected_start_time"] == {"before_": started_at.isoformat()}
    assert asked["flow_runs"]["state"]["type"]["any_"] == ["PENDING", "RUNNING", "CANCELLING"], "scheduled runs stay"
    assert (path, told["state"]["type"]) == ("/api/flow_runs/11/set_state", "CRASHED")
    assert said == ["run merry-crab was cut off by an earlier stop: marked as crashed"]
