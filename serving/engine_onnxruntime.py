"""ONNX Runtime: the engine that every host has, on the CPU, and its CUDA provider.

ONNX Runtime itself falls back to the CPU with a line in the log, so the session's providers are compared with the wish
after it was made. "Available" in ONNX Runtime means compiled in, not usable, and is no evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_contracts.bundle import ModelSpec, Precision
from data_contracts.errors import BundleError, EngineError, Problem
from serving import ort
from serving.engine_types import EngineOptions, Provider, Tensor, Unusable, model_file_for
from serving.model_check import TensorFacts, check_model

PROVIDER_NAMES: dict[Provider, str] = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}
CUDA_OPTIONS = {
    # TF32 rounds to 10 bits of mantissa, and boxes move. The search over all convolution algorithms would start again
    # with every new batch size and make one request of each size slow.
    "use_tf32": "0",
    "cudnn_conv_algo_search": "HEURISTIC",
}
KEPT_INPUT_BYTES = 8 * 2**20
"""A larger batch on the CPU gives its working memory back after the call: kept, eight pictures of 640 px in two
streams hold 600 MB for good. A single picture never does, for taking memory anew costs up to 15 % of a call."""

Session = Any
ProviderList = list[str | tuple[str, dict[str, str]]]


class OnnxEngine:
    """An ONNX Runtime session. One session serves all streams: its weights are in memory once."""

    def __init__(
        self, session: Session, spec: ModelSpec, provider: Provider, options: EngineOptions, degraded: str = ""
    ) -> None:
        self.provider: str = provider
        self.precision: Precision = options.precision
        self.threads, self.streams = options.threads, options.streams
        self.degraded = degraded
        self._session = session
        self._input, self._output = spec.input.tensor, spec.output.tensor
        self._giving_back = _giving_memory_back() if provider == "cpu" else None

    def run(self, batch: Tensor) -> Tensor:
        """One engine call. Raises EngineError when it fails or answers for another number of pictures."""
        large = len(batch) > 1 and batch.nbytes > KEPT_INPUT_BYTES
        try:
            (output,) = self._session.run([self._output], {self._input: batch}, self._giving_back if large else None)
        except Exception as error:  # ONNX Runtime's errors have no common base below Exception
            raise EngineError(f"engine {self.provider}: the call failed: {error}") from error
        if len(output) != len(batch):
            raise EngineError(f"engine {self.provider}: expected {len(batch)} outputs, got {len(output)}")
        return np.asarray(output, dtype=np.float32)


def open_cpu(model: Path, spec: ModelSpec, options: EngineOptions, degraded: str = "") -> OnnxEngine:
    """A session on the CPU. Raises BundleError for a file that ONNX Runtime does not load or the bundle contradicts."""
    model_file = model_file_for(model, options.precision)
    try:
        session = new_session(model_file, options, [PROVIDER_NAMES["cpu"]])
    except Exception as error:  # ONNX Runtime's errors have no common base below Exception
        expected = f"a model that ONNX Runtime {ort.onnxruntime.__version__} loads"
        raise BundleError(Problem(model_file.name, expected, str(error), "Export and seal it again.")) from error
    check_session(model_file, session, spec)
    return OnnxEngine(session, spec, "cpu", options, degraded)


def open_cuda(model: Path, spec: ModelSpec, options: EngineOptions) -> OnnxEngine:
    """A session on the GPU by CUDA. Raises Unusable when it would run elsewhere."""
    require_compiled_in("cuda")
    model_file = model_file_for(model, options.precision)
    ort.load_gpu_libraries()
    try:
        session = new_session(model_file, options, [(PROVIDER_NAMES["cuda"], CUDA_OPTIONS), PROVIDER_NAMES["cpu"]])
    except Exception as error:
        raise Unusable(str(error)) from error
    require_first("cuda", session)
    check_session(model_file, session, spec)
    return OnnxEngine(session, spec, "cuda", options)


def new_session(model_file: Path, options: EngineOptions, providers: ProviderList) -> Session:
    """A session with these providers, in order of preference. The CPU ends every list: single nodes may need it."""
    return ort.onnxruntime.InferenceSession(
        str(model_file), sess_options=session_options(options.threads), providers=providers
    )


def session_options(threads: int) -> Any:
    """Session options with the thread count always set: ONNX Runtime's default of 0 takes all cores of the host."""
    options = ort.onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    # Idle pool threads spin by default and burn the cores of the other workers and of the training beside them.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def require_compiled_in(provider: Provider) -> None:
    """Raises Unusable when this ONNX Runtime was built without the provider."""
    available = ort.onnxruntime.get_available_providers()
    if PROVIDER_NAMES[provider] not in available:
        raise Unusable(f"this ONNX Runtime has only {', '.join(available)}")


def require_first(provider: Provider, session: Session) -> None:
    """Raises Unusable when the session runs elsewhere than asked."""
    first = session.get_providers()[0]
    if first != PROVIDER_NAMES[provider]:
        raise Unusable(f"its libraries did not load, ONNX Runtime took {first}")


def check_session(model_file: Path, session: Session, spec: ModelSpec) -> None:
    """Raises BundleError when the model is not what the bundle says."""
    version = ort.onnxruntime.__version__
    check_model(model_file, _facts(session.get_inputs()), _facts(session.get_outputs()), spec, version)


def _facts(tensors: Sequence[Any]) -> list[TensorFacts]:
    return [TensorFacts(tensor.name, tensor.type, tuple(tensor.shape)) for tensor in tensors]


def _giving_memory_back() -> Any:
    options = ort.onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options
