"""Engines: what turns a batch of input tensors into output tensors.

`open_engine` gives the engine that was asked for or refuses; it never hands out a slower one silently.
`possible_engines` says which ones a host could be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from data_contracts.bundle import ModelSpec, Precision
from data_contracts.errors import EngineError, Problem
from serving import engine_openvino, gpu
from serving.cpus import threads_from_quota
from serving.engine_onnxruntime import (
    PROVIDER_NAMES,
    OnnxEngine,
    open_cpu,
    open_cuda,
    require_compiled_in,
    session_options,
)
from serving.engine_openvino import open_openvino
from serving.engine_tensorrt import open_tensorrt
from serving.engine_types import PRECISIONS, Engine, EngineOptions, Provider, Tensor, Unusable, model_file_for
from serving.ort import load_gpu_libraries

__all__ = [
    "PRECISIONS",
    "PROVIDER_NAMES",
    "Engine",
    "EngineOptions",
    "EnginePossibility",
    "OnnxEngine",
    "Provider",
    "Tensor",
    "open_engine",
    "possible_engines",
    "session_options",
    "threads_from_quota",
]

_OPENERS: dict[Provider, Callable[[Path, ModelSpec, EngineOptions], Engine]] = {
    "cpu": open_cpu,
    "openvino": open_openvino,
    "cuda": open_cuda,
    "tensorrt": open_tensorrt,
}
_INSTALLED_BY = {
    "cpu": "Give the bundle's folder or its file for that precision",
    "openvino": "Install openvino (requirements/serving.txt)",
    "cuda": "Install the provider's libraries (requirements/gpu.txt)",
    "tensorrt": "Install the provider's libraries (requirements/gpu.txt)",
}


@dataclass(frozen=True)
class EnginePossibility:
    """An engine that this host could be asked for; `reason` says why it cannot, and is empty when it can."""

    provider: Provider
    precision: Precision
    reason: str = ""


def open_engine(model: Path, spec: ModelSpec, options: EngineOptions) -> Engine:
    """Load the model, check it against `spec`, and check that it runs where it was asked to.

    `model` is a bundle's folder, which has a file per precision, or a model file. Where a fallback is allowed, ONNX
    Runtime on the CPU stands in for what cannot be had, and says so in `degraded`.
    Raises BundleError when the file contradicts the bundle, EngineError when the engine cannot be had.
    """
    try:
        if options.precision not in PRECISIONS[options.provider]:
            raise Unusable(f"{options.provider} runs {', '.join(PRECISIONS[options.provider])} only")
        return _OPENERS[options.provider](model, spec, options)
    except Unusable as error:
        if not options.allow_fallback:
            raise EngineError(_missing(options, str(error))) from error
        reason = str(error)
    quantised = options.precision == "int8" and not model.is_dir()
    instead = replace(options, provider="cpu", precision="int8" if quantised else "fp32")
    words = f"wanted provider {options.provider} with {options.precision}, running on cpu with {instead.precision}"
    return open_cpu(model, spec, instead, f"{words}: {reason}")


def _missing(options: EngineOptions, reason: str) -> Problem:
    return Problem(
        "engine provider",
        f"{options.provider} with {options.precision}",
        reason,
        f"{_INSTALLED_BY[options.provider]}, or set PASSLINE_PROVIDER=cpu, or PASSLINE_ALLOW_FALLBACK=true to answer "
        "slower on the CPU.",
    )


def possible_engines(
    bundle_files: Path, allowed: Sequence[Provider] = tuple(PRECISIONS)
) -> tuple[EnginePossibility, ...]:
    """What each allowed provider could run of the bundle in `bundle_files` on this host: FP32 ONNX Runtime first.

    A possibility is no promise: whether a GPU provider loads shows when it is opened.
    """
    ordered = sorted(allowed, key=lambda provider: provider != "cpu")
    return tuple(
        EnginePossibility(provider, precision, _obstacle(bundle_files, provider, precision))
        for provider in ordered
        for precision in PRECISIONS[provider]
    )


def _obstacle(bundle_files: Path, provider: Provider, precision: Precision) -> str:
    try:
        model_file_for(bundle_files, precision)
        if provider in ("cuda", "tensorrt"):
            require_compiled_in(provider)
            gpu.read_gpu()
        if provider == "tensorrt":
            load_gpu_libraries()
            gpu.tensorrt_version()
    except Unusable as error:
        return str(error)
    return engine_openvino.missing_for(precision) if provider == "openvino" else ""
