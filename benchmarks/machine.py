"""On what a benchmark ran: numbers without it say little."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
from pydantic import Field

from data_contracts.base import Contract

CPU_FACTS = Path("/proc/cpuinfo")
Load = tuple[float, float, float]


class Machine(Contract):
    """The machine, and how busy it was: load averages over 1, 5 and 15 minutes."""

    cpu: str
    cores: int = Field(ge=1, description="Cores that this process may use.")
    memory_gib: float = Field(gt=0)
    python: str
    system: str
    load_before: Load
    load_after: Load


def read_machine() -> Machine:
    """The machine as it is now; `load_after` is the same as before until the end of a run."""
    load = os.getloadavg()
    facts = CPU_FACTS.read_text(encoding="utf-8", errors="replace") if CPU_FACTS.is_file() else ""
    return Machine(
        cpu=cpu_model(facts) or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=psutil.virtual_memory().total / 2**30,
        python=platform.python_version(),
        system=platform.platform(),
        load_before=load,
        load_after=load,
    )


def cpu_model(cpuinfo: str) -> str | None:
    """The first `model name` of /proc/cpuinfo; None where there is none (arm64).

    >>> cpu_model("processor : 0\\nmodel name : Some CPU\\n")
    'Some CPU'
    """
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return None


def versions_of(packages: Iterable[str], missing: str) -> dict[str, str]:
    """Package to its installed version, or to `missing`."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = missing
    return found
