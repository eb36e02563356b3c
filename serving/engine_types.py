"""What all engines have in common: the wish, the engine itself, and the reason why a wish cannot be had."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from data_contracts.bundle import INT8_MODEL_FILE, MODEL_FILE, Precision

Provider = Literal["cpu", "openvino", "cuda", "tensorrt"]
"""`cpu` is ONNX Runtime on the CPU."""
Tensor = npt.NDArray[np.float32]

PRECISIONS: dict[Provider, tuple[Precision, ...]] = {
    "cpu": ("fp32", "int8"),
    "openvino": ("fp32", "bf16", "int8"),
    "cuda": ("fp32",),
    "tensorrt": ("fp32", "fp16", "int8"),
}


class Unusable(Exception):
    """Why an engine cannot be had on this host. `open_engine` decides whether another one may stand in."""


class Engine(Protocol):
    """A loaded model. `degraded` says what is not as wished, and is empty when all is.

    `threads` work on one call; up to `streams` callers may be inside `run` at once.
    """

    provider: str
    precision: Precision
    threads: int
    streams: int
    degraded: str

    def run(self, batch: Tensor) -> Tensor:
        """float32 (n, 3, height, width) to float32 (n, ...), one output per input, in order."""
        ...


@dataclass(frozen=True)
class EngineOptions:
    """Which engine is wished for. The last three only concern TensorRT, which builds its engine on this host."""

    provider: Provider
    allow_fallback: bool
    threads: int
    streams: int = 1
    precision: Precision = "fp32"
    engine_cache: Path | None = None
    workspace_bytes: int | None = None
    max_batch: int = 8

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads: expected 1 or more, got {self.threads}; 0 would take all cores of the host")
        if self.streams < 1 or self.max_batch < 1:
            raise ValueError(f"streams, max_batch: expected 1 or more, got {self.streams}, {self.max_batch}")


def model_file_for(model: Path, precision: Precision) -> Path:
    """The file that an engine of `precision` loads: `model` itself, or the right one of the bundle folder `model`.

    Raises Unusable where a bundle has no quantised model.
    """
    if not model.is_dir():
        return model
    file = model / (INT8_MODEL_FILE if precision == "int8" else MODEL_FILE)
    if precision == "int8" and not file.is_file():
        raise Unusable(f"the bundle has no {INT8_MODEL_FILE}")
    return file
