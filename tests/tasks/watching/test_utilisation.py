"""The load of the machine: rates between two snapshots, a real process tree, and GPUs that give what they can."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.watching.utilisation import Gpus, Snapshot, load_between, take_snapshot

ONE, OTHER = (1, 100.0), (2, 200.0)


@pytest.mark.parametrize(
    ("before", "after", "cores"),
    [
        pytest.param({ONE: 10.0}, {ONE: 15.0}, 0.5, id="half a core"),
        pytest.param({ONE: 10.0}, {ONE: 20.0, OTHER: 8.0}, 1.8, id="a loader was started"),
        pytest.param({ONE: 10.0, OTHER: 50.0}, {ONE: 20.0}, 1.0, id="a loader ended"),
        pytest.param({(1, 50.0): 90.0}, {ONE: 95.0}, None, id="another training under the same id"),
        pytest.param({}, {ONE: 10.0}, None, id="it was at work before the first snapshot"),
        pytest.param({ONE: 10.0}, {}, None, id="it ended"),
    ],
)
def test_cores_of_the_training(before: dict[Any, float], after: dict[Any, float], cores: float | None) -> None:
    load = load_between(Snapshot(0.0, processes=before), Snapshot(10.0, head=next(iter(after), None), processes=after))
    assert load.get("system/training_cpu_cores") == (None if cores is None else pytest.approx(cores))


def test_the_host_and_levels() -> None:
    before, after = Snapshot(0.0, 50.0, 100.0), Snapshot(10.0, 65.0, 120.0, levels={"disk_usage_percentage": 40.0})
    assert load_between(before, after) == {
        "system/cpu_utilization_percentage": 75.0,
        "system/disk_usage_percentage": 40.0,
    }


def test_without_a_training_there_is_the_host() -> None:
    gpus = SimpleNamespace(levels=lambda: {"gpu_0_utilization_percentage": 3})
    load = load_between(take_snapshot(0, 0.0, gpus), take_snapshot(0, 10.0, gpus))  # type: ignore[arg-type]
    assert 0 <= load.pop("system/cpu_utilization_percentage", 0.0) <= 100
    assert set(load) == {
        "system/system_memory_usage_megabytes",
        "system/system_memory_usage_percentage",
        "system/disk_usage_percentage",
        "system/disk_usage_megabytes",
        "system/disk_available_megabytes",
        "system/gpu_0_utilization_percentage",
    }


def test_a_process_tree_is_seen_and_its_end_too() -> None:
    gpus = SimpleNamespace(levels=dict)
    words = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", words], stdin=subprocess.PIPE) as process:
        seen = take_snapshot(process.pid, 0.0, gpus)  # type: ignore[arg-type]
        while len(seen.processes) < 2:
            assert process.poll() is None
            seen = take_snapshot(process.pid, 0.0, gpus)  # type: ignore[arg-type]
        assert seen.head is not None
        assert seen.head[0] == process.pid
        assert seen.head in seen.processes
        assert seen.levels["training_memory_usage_megabytes"] > 1
        process.communicate(b"\n")
    ended = take_snapshot(process.pid, 1.0, gpus)  # type: ignore[arg-type]
    assert not ended.processes
    assert "training_memory_usage_megabytes" not in ended.levels
    assert "system/training_cpu_cores" not in load_between(seen, ended)
    assert os.getpid() not in {pid for pid, _ in seen.processes}


class NvmlError(Exception):
    """As the driver's library raises it."""


def nvml(**changes: Any) -> SimpleNamespace:
    """Two cards; `changes` replace functions."""
    functions: dict[str, Any] = {
        "NVMLError": NvmlError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda at: at,
        "nvmlDeviceGetUtilizationRates": lambda at: SimpleNamespace(gpu=40 + at),
        "nvmlDeviceGetMemoryInfo": lambda at: SimpleNamespace(used=2e9, total=8e9),
        "nvmlDeviceGetPowerUsage": lambda at: 150_000,
        "nvmlDeviceGetEnforcedPowerLimit": lambda at: 300_000,
    }
    return SimpleNamespace(**(functions | changes))


def fails(*_: Any) -> None:
    raise NvmlError("not supported")


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        pytest.param({}, set(), id="all figures"),
        pytest.param(
            {"nvmlDeviceGetPowerUsage": fails}, {"power_usage_watts", "power_usage_percentage"}, id="no power"
        ),
        pytest.param({"nvmlDeviceGetUtilizationRates": fails}, {"utilization_percentage"}, id="no load"),
    ],
)
def test_gpus(changes: dict[str, Any], missing: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**changes))
    figures = {
        "utilization_percentage": 41,
        "memory_usage_percentage": 25.0,
        "memory_usage_megabytes": 2000.0,
        "power_usage_watts": 150.0,
        "power_usage_percentage": 50.0,
    }
    levels = Gpus().levels()
    assert {name.removeprefix("gpu_1_"): value for name, value in levels.items() if name.startswith("gpu_1_")} == {
        name: value for name, value in figures.items() if name not in missing
    }
    assert len(levels) == 2 * (len(figures) - len(missing))


def test_no_driver_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=fails))
    assert Gpus().levels() == {}
