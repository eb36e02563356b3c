"""What of an inference host decides how fast and how exactly its engines work."""

from __future__ import annotations

import platform
from pathlib import Path

from serving.engine_types import Unusable
from serving.gpu import read_gpu
from serving.library_versions import library_versions

LIBRARIES = ("passline", "onnxruntime", "onnxruntime-gpu", "openvino", "numpy")
CPU_INFO = Path("/proc/cpuinfo")


def host_facts() -> dict[str, object]:
    """Processor, GPU and library versions: what was found out with others does not hold."""
    return {"cpu": cpu_model(), "gpu": gpu_model(), "libraries": library_versions(LIBRARIES)}


def cpu_model(cpu_info: Path = CPU_INFO) -> str:
    """The processor as Linux names it, with its instruction sets; elsewhere as Python does."""
    try:
        lines = cpu_info.read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    first: dict[str, str] = {}
    for name, colon, value in (line.partition(":") for line in lines):
        if colon:
            first.setdefault(name.strip(), value.strip())
    return f"{first.get('model name', platform.machine())}; {first.get('flags', first.get('Features', ''))}"


def gpu_model() -> str:
    """The first GPU with its driver, empty without one."""
    try:
        return str(read_gpu())
    except Unusable:
        return ""
