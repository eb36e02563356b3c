"""The load of a training on its machine, as MLflow's page "System metrics" shows it.

MLflow's own monitor knows nothing of a training's processes and ends for good at the first unanswered request, so the
host is sampled here, under MLflow's names, with the training's processes beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil

MB = 1e6
ProcessKey = tuple[int, float]
"""Process id and time of its start: ids are used again."""


@dataclass(frozen=True)
class Snapshot:
    """What counts up, in seconds, and what stands at one moment: `levels` are metrics as they are logged.

    `processes` are the training, `head`, and all that it started, with the processor seconds that each has used.
    """

    at_s: float
    host_busy_s: float = 0.0
    host_total_s: float = 0.0
    head: ProcessKey | None = None
    processes: Mapping[ProcessKey, float] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)


def load_between(before: Snapshot, after: Snapshot) -> dict[str, float]:
    """Metrics of the time between two snapshots, by MLflow's names.

    `training_cpu_cores` is in cores: 1.8 is one core and most of a second one. There is none for the first snapshot of
    a training, which was at work before it.
    """
    seconds = max(after.at_s - before.at_s, 1e-6)
    total = after.host_total_s - before.host_total_s
    metrics = dict(after.levels)
    if total > 0:
        metrics["cpu_utilization_percentage"] = 100 * (after.host_busy_s - before.host_busy_s) / total
    if after.head in before.processes:
        used = sum(max(0.0, cpu_s - before.processes.get(process, 0.0)) for process, cpu_s in after.processes.items())
        metrics["training_cpu_cores"] = used / seconds
    return {f"system/{name}": round(value, 3) for name, value in metrics.items()}


def take_snapshot(pid: int, now_s: float, gpus: Gpus) -> Snapshot:
    """The machine and the process tree below `pid`, 0 for none. Processes that just ended are left out."""
    times = psutil.cpu_times()
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    total = sum(times) - guests
    head, processes, memory_mb = _process_tree(pid)
    return Snapshot(
        at_s=now_s,
        host_busy_s=total - times.idle - getattr(times, "iowait", 0.0),
        host_total_s=total,
        head=head,
        processes=processes,
        levels={**_memory(), **_disk(pid), **gpus.levels(), **memory_mb},
    )


def _process_tree(pid: int) -> tuple[ProcessKey | None, dict[ProcessKey, float], dict[str, float]]:
    """The head, processor seconds by process, and the memory of all; memory that they share counts once."""
    processes: dict[ProcessKey, float] = {}
    memory = 0
    for process in _family(pid):
        try:
            with process.oneshot():
                times = process.cpu_times()
                memory += process.memory_full_info().pss
                processes[process.pid, process.create_time()] = times.user + times.system
        except psutil.Error:
            continue
    head = next((key for key in processes if key[0] == pid), None)
    return head, processes, {"training_memory_usage_megabytes": memory / MB} if processes else {}


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid) if pid else None
        return [parent, *parent.children(recursive=True)] if parent else []
    except psutil.Error:
        return []


def _memory() -> dict[str, float]:
    memory = psutil.virtual_memory()
    return {
        "system_memory_usage_megabytes": memory.used / MB,
        "system_memory_usage_percentage": 100 * memory.used / memory.total,
    }


def _disk(pid: int) -> dict[str, float]:
    """The disk that the training works on, the root's while there is none."""
    try:
        folder = psutil.Process(pid).cwd() if pid else "/"
        disk = psutil.disk_usage(folder)
    except (psutil.Error, OSError):
        disk = psutil.disk_usage("/")
    return {
        "disk_usage_percentage": disk.percent,
        "disk_usage_megabytes": disk.used / MB,
        "disk_available_megabytes": disk.free / MB,
    }


class Gpus:
    """The NVIDIA GPUs of this machine; none where the driver does not answer."""

    def __init__(self) -> None:
        import pynvml  # type: ignore[import-untyped]

        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError:
            self._handles = []

    def levels(self) -> dict[str, float]:
        """Load, memory and power of each; a figure that a card does not give is left out."""
        found: dict[str, float] = {}
        for number, handle in enumerate(self._handles):
            for read in (self._load, self._memory, self._power):
                try:
                    found |= {f"gpu_{number}_{name}": value for name, value in read(handle).items()}
                except self._nvml.NVMLError:
                    continue
        return found

    def _load(self, handle: Any) -> dict[str, float]:
        return {"utilization_percentage": self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu}

    def _memory(self, handle: Any) -> dict[str, float]:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        return {
            "memory_usage_percentage": 100 * memory.used / memory.total,
            "memory_usage_megabytes": memory.used / MB,
        }

    def _power(self, handle: Any) -> dict[str, float]:
        watts = self._nvml.nvmlDeviceGetPowerUsage(handle) / 1000
        limit = self._nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000
        return {"power_usage_watts": watts, "power_usage_percentage": 100 * watts / limit}
