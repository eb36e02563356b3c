from __future__ import annotations

import os
from pathlib import Path

import pytest

from data_contracts.errors import InvalidInput
from deployments import jobs_host
from deployments.jobs_host import host_resources, memory_limit, parse_devices
from deployments.jobs_plan import Device

TWO = (Device(0, 8000, 7000), Device(1, 16000, 16000))


def test_a_host_gives_what_it_has_where_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_host, "query_devices", lambda: TWO)
    host = host_resources({})
    assert set(host.cores) <= os.sched_getaffinity(0)
    assert host.memory_mib == memory_limit() // 2**20
    assert host.devices == TWO


def test_the_environment_leaves_something_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_host, "query_devices", lambda: TWO)
    given = {"PASSLINE_JOB_CPUS": "1", "PASSLINE_JOB_MEMORY_MIB": "512", "PASSLINE_JOB_DEVICES": "1"}
    host = host_resources(given)
    assert (len(host.cores), host.memory_mib, host.devices) == (1, 512, TWO[1:])
    assert host_resources({"PASSLINE_JOB_DEVICES": ""}).devices == ()
    assert host_resources({"PASSLINE_JOB_MEMORY_MIB": "999999999"}).memory_mib < 999999999


def test_every_wrong_setting_is_named() -> None:
    wrong = {"PASSLINE_JOB_CPUS": "0", "PASSLINE_JOB_MEMORY_MIB": "much", "PASSLINE_JOB_DEVICES": "0;1"}
    with pytest.raises(InvalidInput) as refused:
        host_resources(wrong)
    assert [problem.subject for problem in refused.value.problems] == list(wrong)  # type: ignore[union-attr]


def test_what_the_driver_lists() -> None:
    assert parse_devices("0, 8000, 7000\n1, 16000, 16000\n") == TWO
    assert parse_devices("No devices were found\n") == ()


@pytest.mark.parametrize(("text", "limited"), [("1048576\n", True), ("max\n", False)])
def test_a_container_has_the_memory_that_it_is_given(tmp_path: Path, text: str, limited: bool) -> None:
    (tmp_path / "memory.max").write_text(text)
    assert (memory_limit(tmp_path) == 2**20) == limited
