"""The GPU of this host, as far as engines built for it depend on it."""

from __future__ import annotations

import ctypes
import os
import subprocess

from data_contracts.base import Contract
from serving.engine_types import Unusable

QUERY = "name,compute_cap,driver_version"
ANSWER_WITHIN_S = 20.0


class GpuFacts(Contract):
    """One NVIDIA GPU."""

    name: str
    capability: str
    driver: str


def read_gpu() -> GpuFacts:
    """The GPU that this process would use first, from nvidia-smi. Raises Unusable where there is none."""
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader", *_visible()]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unusable(f"no NVIDIA GPU here: nvidia-smi does not answer ({error})") from None
    if answer.returncode != 0:
        raise Unusable(f"no NVIDIA GPU here: nvidia-smi says {(answer.stdout + answer.stderr).strip()!r}")
    return parse_gpu(answer.stdout)


def parse_gpu(lines: str) -> GpuFacts:
    """The first GPU that nvidia-smi lists. Raises Unusable when it lists none.

    >>> parse_gpu("NVIDIA L4, 8.9, 580.65.06\\n").capability
    '8.9'
    """
    fields = [field.strip() for field in lines.strip().partition("\n")[0].split(",")]
    if len(fields) != 3 or not all(fields):
        raise Unusable(f"no NVIDIA GPU here: nvidia-smi says {lines.strip()!r}")
    return GpuFacts(name=fields[0], capability=fields[1], driver=fields[2])


def _visible() -> list[str]:
    """CUDA_VISIBLE_DEVICES hides and reorders GPUs for CUDA, not for nvidia-smi."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return ["-i", first] if first else []


def tensorrt_version() -> str:
    """Version of the TensorRT library that ONNX Runtime would load, such as 10.16.1. Raises Unusable without it."""
    try:
        library = ctypes.CDLL("libnvinfer.so.10")
    except OSError as error:
        raise Unusable(f"TensorRT does not load: {error}") from None
    return version_text(int(library.getInferLibVersion()))


def version_text(number: int) -> str:
    """TensorRT 10's own number as text.

    >>> version_text(101601)
    '10.16.1'
    """
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
