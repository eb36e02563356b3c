"""Engines: what turns a batch of input tensors into output tensors.

`open_engine` gives the engine that was asked for or refuses. It never hands out a slower one silently: ONNX Runtime
itself falls back to the CPU with a line in the log, so the session's providers are compared with the wish after it was
made. "Available" in ONNX Runtime means compiled in, not usable, and is no evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from data_contracts.bundle import ModelSpec, Precision
from data_contracts.errors import BundleError, EngineError, Problem
from serving.cpus import threads_from_quota
from serving.model_check import check_model
from serving.ort import onnxruntime as ort

__all__ = ["Engine", "EngineOptions", "OnnxEngine", "open_engine", "threads_from_quota"]

Provider = Literal["cpu", "cuda", "tensorrt"]
Tensor = npt.NDArray[np.float32]

PROVIDER_NAMES: dict[Provider, str] = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}


class Engine(Protocol):
    """A loaded model. `degraded` says what is not as wished, and is empty when all is."""

    provider: str
    precision: Precision
    threads: int
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
    precision: Precision = "fp32"
    engine_cache: Path | None = None
    workspace_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads: expected 1 or more, got {self.threads}; 0 would take all cores of the host")


class OnnxEngine:
    """An ONNX Runtime session."""

    def __init__(
        self, session: Any, spec: ModelSpec, provider: Provider, options: EngineOptions, degraded: str
    ) -> None:
        self.provider: str = provider
        self.precision: Precision = options.precision if provider == "tensorrt" else "fp32"
        self.threads = options.threads
        self.degraded = degraded
        self._session = session
        self._input, self._output = spec.input.tensor, spec.output.tensor

    def run(self, batch: Tensor) -> Tensor:
        """One engine call. Raises EngineError when it fails or answers for another number of pictures."""
        try:
            (output,) = self._session.run([self._output], {self._input: batch})
        except Exception as error:  # ONNX Runtime's errors have no common base below Exception
            raise EngineError(f"engine {self.provider}: the call failed: {error}") from error
        if len(output) != len(batch):
            raise EngineError(f"engine {self.provider}: expected {len(batch)} outputs, got {len(output)}")
        return np.asarray(output, dtype=np.float32)


def open_engine(model_file: Path, spec: ModelSpec, options: EngineOptions) -> Engine:
    """Load the model, check it against `spec`, and check that it runs where it was asked to.

    Raises BundleError when the file contradicts the bundle, EngineError when the provider cannot be had.
    """
    session, reason = _open_wished(model_file, options)
    if session is not None:
        check_model(model_file, session, spec, ort.__version__)
        return OnnxEngine(session, spec, options.provider, options, degraded="")
    if not options.allow_fallback:
        raise EngineError(_missing(options.provider, reason))
    session = _open_session(model_file, options, "cpu")
    check_model(model_file, session, spec, ort.__version__)
    return OnnxEngine(session, spec, "cpu", options, f"wanted provider {options.provider}, running on cpu: {reason}")


def _open_wished(model_file: Path, options: EngineOptions) -> tuple[Any | None, str]:
    """The session on the provider that was asked for, or None and the reason why that cannot be had."""
    name = PROVIDER_NAMES[options.provider]
    available = ort.get_available_providers()
    if options.provider == "cpu":
        return _open_session(model_file, options, "cpu"), ""
    if name not in available:
        return None, f"this ONNX Runtime has only {', '.join(available)}"
    try:
        session = _new_session(model_file, options, options.provider)
    except Exception as error:  # noqa: BLE001  ONNX Runtime's errors have no common base below it; a reason goes on
        return None, str(error)
    first = session.get_providers()[0]
    return (session, "") if first == name else (None, f"its libraries did not load, ONNX Runtime took {first}")


def _missing(provider: Provider, reason: str) -> Problem:
    return Problem(
        "engine provider",
        f"{provider} ({PROVIDER_NAMES[provider]}), available here: {', '.join(ort.get_available_providers())}",
        reason,
        "Install the provider's libraries, or set PASSLINE_PROVIDER=cpu, or PASSLINE_ALLOW_FALLBACK=true to answer "
        "slower on the CPU.",
    )


def _open_session(model_file: Path, options: EngineOptions, provider: Provider) -> Any:
    try:
        return _new_session(model_file, options, provider)
    except Exception as error:  # ONNX Runtime's errors have no common base below Exception
        expected = f"a model that ONNX Runtime {ort.__version__} loads"
        raise BundleError(Problem(model_file.name, expected, str(error), "Export and seal it again.")) from error


def _new_session(model_file: Path, options: EngineOptions, provider: Provider) -> Any:
    return ort.InferenceSession(
        str(model_file), sess_options=session_options(options.threads), providers=providers_for(provider, options)
    )


def session_options(threads: int) -> Any:
    """Session options with the thread count always set: ONNX Runtime's default of 0 takes all cores of the host."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    # Idle pool threads spin by default and burn the cores of the other workers and of the training beside them.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def providers_for(provider: Provider, options: EngineOptions) -> list[str | tuple[str, dict[str, str]]]:
    """Providers in order of preference, with their options. The CPU ends every list: single nodes may need it."""
    # TF32 rounds to 10 bits of mantissa, and boxes move. The search over all convolution algorithms would start again
    # with every new batch size and make one request of each size slow.
    cuda = (PROVIDER_NAMES["cuda"], {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"})
    cpu = PROVIDER_NAMES["cpu"]
    if provider == "tensorrt":
        return [(PROVIDER_NAMES["tensorrt"], _tensorrt_options(options)), cuda, cpu]
    return [cuda, cpu] if provider == "cuda" else [cpu]


def _tensorrt_options(options: EngineOptions) -> dict[str, str]:
    wished = {"trt_fp16_enable": "1" if options.precision == "fp16" else "0"}
    if options.workspace_bytes is not None:
        wished["trt_max_workspace_size"] = str(options.workspace_bytes)
    if options.engine_cache is not None:
        wished |= {"trt_engine_cache_enable": "1", "trt_engine_cache_path": str(options.engine_cache)}
        wished |= {"trt_timing_cache_enable": "1", "trt_timing_cache_path": str(options.engine_cache)}
    return wished
