"""OpenVINO on the CPU: the faster engine where the CPU has BF16 or INT8 instructions.

Threads and streams are always set, for the library's own choice counts the host's cores. Its threads are not bound to
cores: other workers and the training beside it would be bound to the same ones.
"""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import numpy as np

from data_contracts.bundle import ModelSpec, Precision
from data_contracts.errors import BundleError, EngineError, Problem
from serving.engine_types import EngineOptions, Tensor, Unusable, model_file_for
from serving.model_check import FLOAT_TENSOR, TensorFacts, check_model
from serving.openvino_runtime import cpu_capabilities, openvino_core

HINTS: dict[Precision, str] = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}
"""Precision of all that the model file itself does not quantise."""


class OpenVinoEngine:
    """A model compiled for this CPU. Its batch is open: a fixed one gained 2 % at most, and would need one per size."""

    def __init__(self, compiled: Any, spec: ModelSpec, options: EngineOptions) -> None:
        self.provider: str = "openvino"
        self.precision: Precision = options.precision
        self.threads, self.streams = options.threads, options.streams
        self.degraded = ""
        self._output = compiled.output(spec.output.tensor)
        # A request holds the buffers of one call, so each caller takes one for itself.
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(options.streams):
            self._free.put(compiled.create_infer_request())

    def run(self, batch: Tensor) -> Tensor:
        """One engine call. Raises EngineError when it fails or answers for another number of pictures."""
        request = self._free.get()
        try:
            # The answer is copied out of the request, whose buffers the next call writes to.
            output = np.array(request.infer([batch], share_inputs=True, share_outputs=True)[self._output], np.float32)
        except RuntimeError as error:
            raise EngineError(f"engine {self.provider}: the call failed: {error}") from error
        finally:
            self._free.put(request)
        if len(output) != len(batch):
            raise EngineError(f"engine {self.provider}: expected {len(batch)} outputs, got {len(output)}")
        return output


def open_openvino(model: Path, spec: ModelSpec, options: EngineOptions) -> OpenVinoEngine:
    """Read, check and compile the model. Raises Unusable when this host cannot run it so, BundleError for its file."""
    reason = missing_for(options.precision)
    if reason:
        raise Unusable(reason)
    model_file = model_file_for(model, options.precision)
    network = _read(model_file)
    check_model(model_file, _facts(network.inputs), _facts(network.outputs), spec, None)
    try:
        compiled = openvino_core().compile_model(network, "CPU", compile_options(options))
    except RuntimeError as error:
        raise Unusable(f"OpenVINO does not compile the model: {error}") from error
    return OpenVinoEngine(compiled, spec, options)


def missing_for(precision: Precision) -> str:
    """Why OpenVINO cannot run this precision here; empty when it can."""
    try:
        capabilities = cpu_capabilities()
    except Unusable as error:
        return str(error)
    if precision == "bf16" and "BF16" not in capabilities:
        return f"this CPU has no BF16 instructions, only {', '.join(capabilities)}"
    return ""


def compile_options(options: EngineOptions) -> dict[str, str | int | bool]:
    """OpenVINO's properties for a wish.

    >>> wish = EngineOptions("openvino", allow_fallback=False, threads=2, streams=3, precision="bf16")
    >>> compile_options(wish)["INFERENCE_NUM_THREADS"], compile_options(wish)["INFERENCE_PRECISION_HINT"]
    (6, 'bf16')
    """
    return {
        "INFERENCE_NUM_THREADS": options.threads * options.streams,
        "NUM_STREAMS": options.streams,
        "INFERENCE_PRECISION_HINT": HINTS[options.precision],
        "ENABLE_CPU_PINNING": False,
    }


def _read(model_file: Path) -> Any:
    try:
        return openvino_core().read_model(str(model_file))
    except RuntimeError as error:
        expected = "a model that OpenVINO loads"
        raise BundleError(Problem(model_file.name, expected, str(error), "Export and seal it again.")) from error


def _facts(ports: Any) -> list[TensorFacts]:
    return [
        TensorFacts(port.any_name, _type(port), tuple(_size(axis) for axis in port.partial_shape)) for port in ports
    ]


def _type(port: Any) -> str:
    name = port.element_type.get_type_name()
    return FLOAT_TENSOR if name == "f32" else f"tensor({name})"


def _size(axis: Any) -> int | None:
    return None if axis.is_dynamic else int(axis.get_length())
