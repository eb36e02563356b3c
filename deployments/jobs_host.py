"""What this machine gives to training jobs: its cores, its memory, its GPUs; the environment may say less."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

from data_contracts.errors import InvalidInput, Problem, raise_if_any
from deployments.jobs_plan import Device, HostResources
from serving.cpus import CGROUP_ROOT, threads_from_quota

CPUS, MEMORY, DEVICES = "PASSLINE_JOB_CPUS", "PASSLINE_JOB_MEMORY_MIB", "PASSLINE_JOB_DEVICES"
MIB = 2**20
QUERY = ("--query-gpu=index,memory.total,memory.free", "--format=csv,noheader,nounits")


def host_resources(environ: Mapping[str, str]) -> HostResources:
    """What jobs may have here, as of now.

    PASSLINE_JOB_CPUS and PASSLINE_JOB_MEMORY_MIB leave the rest of the machine to others; PASSLINE_JOB_DEVICES lists
    the GPUs by number, such as "0,1", and may be empty. Raises InvalidInput for a value that is none.
    """
    raise_if_any(InvalidInput, _problems(environ))
    cores = sorted(os.sched_getaffinity(0))
    count = min(threads_from_quota(1), int(environ.get(CPUS, len(cores))))
    memory_mib = min(memory_limit() // MIB, int(environ.get(MEMORY, memory_limit() // MIB)))
    return HostResources(tuple(cores[:count]), memory_mib, _chosen(query_devices(), environ.get(DEVICES)))


def _problems(environ: Mapping[str, str]) -> list[Problem]:
    numbers = [(name, environ[name]) for name in (CPUS, MEMORY) if name in environ]
    found = [
        Problem(name, "a whole number from 1", repr(text), "Correct or unset it.")
        for name, text in numbers
        if not text.isdigit() or int(text) < 1
    ]
    devices = environ.get(DEVICES, "")
    if not all(part.strip().isdigit() for part in devices.split(",") if devices):
        found.append(Problem(DEVICES, 'GPU numbers such as "0,1"', repr(devices), "Correct or unset it."))
    return found


def _chosen(devices: tuple[Device, ...], listed: str | None) -> tuple[Device, ...]:
    if listed is None:
        return devices
    wanted = {int(part) for part in listed.split(",") if part}
    return tuple(device for device in devices if device.index in wanted)


def memory_limit(cgroup_root: Path = CGROUP_ROOT) -> int:
    """Bytes of main memory of this machine, or of the container that this process is in."""
    total = psutil.virtual_memory().total
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (cgroup_root / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return min(total, int(text))
    return total


def query_devices() -> tuple[Device, ...]:
    """The GPUs that the driver shows, with what is free on them now; none where there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        done = subprocess.run([program, *QUERY], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return parse_devices(done.stdout) if done.returncode == 0 else ()


def parse_devices(listing: str) -> tuple[Device, ...]:
    """GPUs from lines of index, total and free memory.

    >>> parse_devices("0, 81559, 81000\\n")
    (Device(index=0, memory_mib=81559, free_mib=81000),)
    """
    rows = [[field.strip() for field in line.split(",")] for line in listing.splitlines()]
    return tuple(
        Device(int(row[0]), int(row[1]), int(row[2])) for row in rows if len(row) == 3 and all(map(str.isdigit, row))
    )
