"""Does the model file say what the bundle's manifest says? Every difference is named by its field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data_contracts.bundle import ModelSpec, RuntimeSpec
from data_contracts.errors import BundleError, Problem, raise_if_any
from serving.onnx_header import read_onnx_header

FLOAT_TENSOR = "tensor(float)"
RESEAL = "Export and seal it again."


@dataclass(frozen=True)
class TensorFacts:
    """An input or output of a loaded model. `type` in ONNX Runtime's words; an open axis is no int."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]


def check_model(
    model_file: Path,
    inputs: Sequence[TensorFacts],
    outputs: Sequence[TensorFacts],
    spec: ModelSpec,
    onnxruntime_version: str | None,
) -> None:
    """Compare the file and what an engine read from it with `spec`. Raises BundleError with all differences.

    `onnxruntime_version` is None for an engine without ONNX Runtime.
    """
    problems = check_versions(model_file, spec.runtime, onnxruntime_version)
    problems += _check_input(inputs, spec)
    problems += _check_output(outputs, spec)
    raise_if_any(BundleError, problems)


def check_versions(model_file: Path, spec: RuntimeSpec, onnxruntime_version: str | None) -> list[Problem]:
    """IR version, opset and the age of the installed ONNX Runtime."""
    try:
        header = read_onnx_header(model_file)
    except ValueError as error:
        return [Problem(model_file.name, "an ONNX file", str(error), RESEAL)]
    problems = []
    if header.ir != spec.onnx_ir:
        problems.append(_differs("model.runtime.onnx_ir", spec.onnx_ir, header.ir))
    if header.opset != spec.onnx_opset:
        problems.append(_differs("model.runtime.onnx_opset", spec.onnx_opset, header.opset))
    if onnxruntime_version is not None and _release(onnxruntime_version) < _release(spec.onnxruntime_min):
        expected = f"ONNX Runtime {spec.onnxruntime_min} or newer"
        problems.append(
            Problem("model.runtime.onnxruntime_min", expected, onnxruntime_version, "Update the serving environment.")
        )
    return problems


def _check_input(inputs: Sequence[TensorFacts], spec: ModelSpec) -> list[Problem]:
    if [tensor.name for tensor in inputs] != [spec.input.tensor]:
        return [_differs("model.input.tensor", spec.input.tensor, [tensor.name for tensor in inputs])]
    problems = []
    (tensor,) = inputs
    width, height = spec.input.wh
    if tensor.type != FLOAT_TENSOR:
        problems.append(_differs("model.input.dtype", spec.input.dtype, tensor.type))
    if tensor.shape[1:] != (3, height, width):
        problems.append(_differs("model.input.wh", f"(batch, 3, {height}, {width})", tensor.shape))
    if tensor.shape and isinstance(tensor.shape[0], int):
        problems.append(_differs("model.input batch", "a batch of any size", tensor.shape))
    return problems


def _check_output(outputs: Sequence[TensorFacts], spec: ModelSpec) -> list[Problem]:
    """Sizes that the file leaves open are checked on what the engine answers, in `serving.postprocess`."""
    tensor = next((tensor for tensor in outputs if tensor.name == spec.output.tensor), None)
    if tensor is None:
        return [_differs("model.output.tensor", spec.output.tensor, [tensor.name for tensor in outputs])]
    problems = []
    if tensor.type != FLOAT_TENSOR:
        problems.append(_differs("model.output.tensor type", FLOAT_TENSOR, tensor.type))
    axis, size = output_axis(spec)
    if len(tensor.shape) != 3 or (isinstance(tensor.shape[axis], int) and tensor.shape[axis] != size):
        expected = f"3 axes, axis {axis} of size {size} ({spec.output.layout}, {len(spec.class_names)} classes)"
        problems.append(_differs("model.output.layout", expected, tensor.shape))
    return problems


def output_axis(spec: ModelSpec) -> tuple[int, int]:
    """The axis of the output that carries box and scores, and its size: raw (1, 4 + classes), end to end (2, 6)."""
    return (1, 4 + len(spec.class_names)) if spec.output.layout == "raw" else (2, 6)


def _differs(field: str, expected: object, got: object) -> Problem:
    return Problem(field, str(expected), f"{got} in the model file", RESEAL)


def _release(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: 1.31.1 and 1.31.1+cu13 are (1, 31, 1)."""
    numbers = version.split("+")[0].split(".")
    return tuple(int(number) for number in numbers if number.isdigit())
