from __future__ import annotations

from pathlib import Path

import pytest

from data_contracts.errors import InvalidInput
from serving.launch import check_address, exec_service, serve_command, serve_environment
from serving.settings import HostSettings


def settings(**changes: object) -> HostSettings:
    return HostSettings.model_validate({"store": "/somewhere/host", **changes})


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.53", "::1"])
def test_it_listens_on_this_machine(address: str) -> None:
    check_address(settings(service_host=address))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.7", "localhost", "plant-7.example", ""])
def test_it_listens_nowhere_else(address: str) -> None:
    with pytest.raises(InvalidInput, match="PASSLINE_SERVICE_HOST"):
        check_address(settings(service_host=address))


def test_a_refusal_ends_the_start_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSLINE_SERVICE_HOST", "0.0.0.0")
    with pytest.raises(SystemExit, match="loopback"):
        exec_service()


def test_wrong_settings_end_the_start_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSLINE_SERVICE_WORKERS", "none")
    with pytest.raises(SystemExit, match="PASSLINE_SERVICE_WORKERS"):
        exec_service()


def test_the_command_names_address_and_drain_time() -> None:
    command = serve_command(settings(service_port=3100))
    assert command[command.index("--port") + 1] == "3100"
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert int(command[command.index("--timeout-graceful-shutdown") + 1]) < 120
    assert int(command[command.index("--timeout-keep-alive") + 1]) > 60


def test_the_host_may_set_its_own_heaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    assert serve_environment(settings())["MALLOC_ARENA_MAX"] == "8"


def test_the_environment_keeps_bentoml_in_the_store_and_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENTOML_HOME", "/home/someone/bentoml")
    environment = serve_environment(settings(service_workers=3))
    assert environment["BENTOML_DO_NOT_TRACK"] == "True"
    assert environment["ORT_DISABLE_TELEMETRY"] == "1"
    assert environment["MALLOC_ARENA_MAX"] == "2"
    assert environment["BENTOML_HOME"] == "/somewhere/host/bentoml"
    assert Path(environment["PASSLINE_STORE"]).is_absolute()
    assert environment["BENTOML_CONFIG_OPTIONS"] == "services.inspection.workers=3"
