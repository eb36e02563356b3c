"""A fake ONNX Runtime that has compiled in, loads and fails what it is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from serving import ort
from serving.engine_onnxruntime import PROVIDER_NAMES

ALL = ["tensorrt", "cuda", "cpu"]
ENGINE_FILE = "TensorrtExecutionProvider_main_graph.engine"


class FakeRuntime:
    """Stands for the onnxruntime module; `usable` providers load, the others fall back to the CPU without a word.

    A session that is asked for TensorRT writes an engine file where it is told to keep one, and does not load one that
    does not read "engine". `errors` are raised one by one by sessions that are asked for a GPU.
    """

    __version__ = "1.31.1"
    SessionOptions = ort.onnxruntime.SessionOptions
    RunOptions = ort.onnxruntime.RunOptions
    ExecutionMode = ort.onnxruntime.ExecutionMode

    def __init__(
        self, real: Any, compiled: list[str], usable: list[str], errors: list[Exception] | None = None
    ) -> None:
        self._real, self._usable, self._errors = real, [PROVIDER_NAMES[name] for name in usable], list(errors or [])
        self._compiled = [PROVIDER_NAMES[name] for name in compiled]
        self.asked: list[Any] = []
        self.built = 0

    @property
    def gpu_tries(self) -> int:
        """Sessions that were asked for on a GPU."""
        return sum(len(providers) > 1 for providers in self.asked)

    def get_available_providers(self) -> list[str]:
        """What was compiled in."""
        return self._compiled

    def InferenceSession(self, path: str, sess_options: Any, providers: list[Any]) -> Any:  # noqa: N802
        """A real CPU session that says that it runs on the usable ones of `providers`."""
        names = [provider if isinstance(provider, str) else provider[0] for provider in providers]
        self.asked.append(providers)
        if len(names) > 1 and self._errors:
            raise self._errors.pop(0)
        if names[0] == PROVIDER_NAMES["tensorrt"]:
            self._keep_engine(providers[0][1].get("trt_engine_cache_path"))
        session = self._real.InferenceSession(path, sess_options=sess_options, providers=["CPUExecutionProvider"])
        got = [name for name in names if name in self._usable]
        return SimpleNamespace(
            get_providers=lambda: got, run=session.run, get_inputs=session.get_inputs, get_outputs=session.get_outputs
        )

    def _keep_engine(self, folder: str | None) -> None:
        file = Path(folder or "") / ENGINE_FILE
        if folder and file.exists():
            if file.read_text() != "engine":
                raise RuntimeError("TensorRT EP could not deserialize engine from cache")
            return
        self.built += 1
        if folder:
            file.write_text("engine")
