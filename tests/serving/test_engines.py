from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import builders
from builders import CPU, colour_stub, model_spec, tiny_onnx
from data_contracts.bundle import InputSpec, OutputSpec, RuntimeSpec
from data_contracts.errors import BundleError, EngineError
from serving import engines
from serving.engines import PROVIDER_NAMES, EngineOptions, open_engine, providers_for, session_options
from serving.onnx_header import OnnxHeader, read_onnx_header


@pytest.fixture
def model_file(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(colour_stub())
    return file


def test_it_answers_one_output_per_picture(model_file):
    engine = open_engine(model_file, model_spec(), CPU)
    assert (engine.provider, engine.precision, engine.threads, engine.degraded) == ("cpu", "fp32", 1, "")
    for count in (1, 3):
        output = engine.run(np.zeros((count, 3, 64, 64), np.float32))
        assert output.shape == (count, 6, 16)
        assert output.dtype == np.float32


def test_a_rectangular_tensor_is_refused(model_file):
    """The input is square by contract: a reader that pads less than the letterbox must not get an answer."""
    with pytest.raises(EngineError, match="the call failed"):
        open_engine(model_file, model_spec(), CPU).run(np.zeros((1, 3, 32, 64), np.float32))


def test_threads_are_always_set_and_idle_threads_sleep():
    options = session_options(3)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


@pytest.mark.parametrize("threads", [0, -1])
def test_a_thread_count_for_the_runtime_to_guess_is_refused(threads):
    with pytest.raises(ValueError, match="threads: expected 1 or more"):
        EngineOptions(provider="cpu", allow_fallback=False, threads=threads)


# --- providers: a fake ONNX Runtime that has compiled in, loads and fails what it is told -------------------------


class FakeRuntime:
    """Stands for the onnxruntime module; `usable` providers load, the others fall back to the CPU without a word."""

    __version__ = "1.31.1"
    SessionOptions = engines.ort.SessionOptions
    ExecutionMode = engines.ort.ExecutionMode

    def __init__(self, real, compiled: list[str], usable: list[str], error: Exception | None = None) -> None:
        self._real, self._usable, self._error = real, usable, error
        self._compiled = [PROVIDER_NAMES[name] for name in compiled]
        self.asked: list[object] = []

    def get_available_providers(self) -> list[str]:
        return self._compiled

    def InferenceSession(self, path, sess_options, providers):  # noqa: N802
        names = [provider if isinstance(provider, str) else provider[0] for provider in providers]
        self.asked.append(providers)
        if self._error and len(names) > 1:
            raise self._error
        session = self._real.InferenceSession(path, sess_options=sess_options, providers=["CPUExecutionProvider"])
        got = [name for name in names if name in [PROVIDER_NAMES[wish] for wish in self._usable]]
        return SimpleNamespace(
            get_providers=lambda: got, run=session.run, get_inputs=session.get_inputs, get_outputs=session.get_outputs
        )


@pytest.fixture
def fake_runtime(monkeypatch):
    real = engines.ort

    def install(**facts) -> FakeRuntime:
        fake = FakeRuntime(real, **facts)
        monkeypatch.setattr(engines, "ort", fake)
        return fake

    return install


def wish(provider: str, *, allow_fallback: bool = False, **more) -> EngineOptions:
    return EngineOptions(provider=provider, allow_fallback=allow_fallback, threads=1, **more)


ALL = ["tensorrt", "cuda", "cpu"]
MISSING = {
    "not compiled in": ("cuda", {"compiled": ["cpu"], "usable": ["cpu"]}, "has only CPUExecutionProvider"),
    "libraries missing": ("cuda", {"compiled": ALL, "usable": ["cpu"]}, "took CPUExecutionProvider"),
    "tensorrt ends on cuda": ("tensorrt", {"compiled": ALL, "usable": ["cuda", "cpu"]}, "took CUDAExecutionProvider"),
    "device out of memory": ("cuda", {"compiled": ALL, "usable": ALL, "error": RuntimeError("CUDA failure 2")},
                             "CUDA failure 2"),
}  # fmt: skip


@pytest.mark.parametrize(("provider", "facts", "reason"), MISSING.values(), ids=MISSING)
def test_a_missing_provider_is_refused_naming_wanted_and_available(fake_runtime, model_file, provider, facts, reason):
    fake_runtime(**facts)
    with pytest.raises(EngineError, match=reason) as caught:
        open_engine(model_file, model_spec(), wish(provider))
    assert PROVIDER_NAMES[provider] in str(caught.value)
    assert ", ".join(PROVIDER_NAMES[name] for name in facts["compiled"]) in str(caught.value)


@pytest.mark.parametrize(("provider", "facts", "reason"), MISSING.values(), ids=MISSING)
def test_an_allowed_fallback_runs_on_the_cpu_and_says_so(fake_runtime, model_file, provider, facts, reason):
    fake = fake_runtime(**facts)
    engine = open_engine(model_file, model_spec(), wish(provider, allow_fallback=True))
    assert (engine.provider, engine.precision) == ("cpu", "fp32")
    assert f"wanted provider {provider}, running on cpu" in engine.degraded
    assert reason in engine.degraded
    assert fake.asked[-1] == ["CPUExecutionProvider"]
    assert engine.run(np.zeros((1, 3, 64, 64), np.float32)).shape == (1, 6, 16)


@pytest.mark.parametrize("provider", ALL)
def test_a_usable_provider_is_used(fake_runtime, model_file, provider):
    fake_runtime(compiled=ALL, usable=ALL)
    engine = open_engine(model_file, model_spec(), wish(provider))
    assert (engine.provider, engine.degraded) == (provider, "")


def test_tensorrt_options(tmp_path):
    options = wish("tensorrt", precision="fp16", engine_cache=tmp_path, workspace_bytes=2**30)
    (name, trt), (second, cuda), last = providers_for("tensorrt", options)
    assert (name, second, last) == (PROVIDER_NAMES["tensorrt"], PROVIDER_NAMES["cuda"], PROVIDER_NAMES["cpu"])
    assert trt["trt_fp16_enable"] == "1"
    assert trt["trt_max_workspace_size"] == str(2**30)
    assert (trt["trt_engine_cache_enable"], trt["trt_engine_cache_path"]) == ("1", str(tmp_path))
    assert cuda["use_tf32"] == "0"


def test_tensorrt_without_a_cache_and_in_full_precision():
    (_, trt), *_ = providers_for("tensorrt", wish("tensorrt"))
    assert trt == {"trt_fp16_enable": "0"}


@pytest.mark.parametrize(("provider", "precision"), [("tensorrt", "fp16"), ("cuda", "fp32"), ("cpu", "fp32")])
def test_the_precision_is_the_one_that_the_provider_runs(fake_runtime, model_file, provider, precision):
    fake_runtime(compiled=ALL, usable=ALL)
    assert open_engine(model_file, model_spec(), wish(provider, precision="fp16")).precision == precision


def test_too_few_answers_are_an_error(fake_runtime, model_file):
    engine = open_engine(model_file, model_spec(), CPU)
    engine._session = SimpleNamespace(run=lambda *_: [np.zeros((1, 6, 16), np.float32)])
    with pytest.raises(EngineError, match="expected 2 outputs, got 1"):
        engine.run(np.zeros((2, 3, 64, 64), np.float32))


# --- the model file against the manifest --------------------------------------------------------------------------


def input_spec(**changes) -> InputSpec:
    fields = {"tensor": "images", "wh": (64, 64), "colour_order": "rgb", "dtype": "float32", "divisor": 255.0}
    return InputSpec(**(fields | changes))


def runtime_spec(**changes) -> RuntimeSpec:
    return RuntimeSpec(**({"onnx_opset": 17, "onnx_ir": 8, "onnxruntime_min": "1.17.0"} | changes))


CONTRADICTIONS = {
    "opset": ({"runtime": runtime_spec(onnx_opset=16)}, "model.runtime.onnx_opset: expected 16, got 17"),
    "ir": ({"runtime": runtime_spec(onnx_ir=9)}, "model.runtime.onnx_ir: expected 9, got 8"),
    "runtime too old": ({"runtime": runtime_spec(onnxruntime_min="1.99.0")}, "expected ONNX Runtime 1.99.0 or newer"),
    "input tensor": ({"input": input_spec(tensor="pictures")}, "model.input.tensor: expected pictures"),
    "input size": ({"input": input_spec(wh=(64, 32))}, r"model.input.wh: expected \(batch, 3, 32, 64\)"),
    "output tensor": ({"output": OutputSpec(tensor="boxes", layout="raw")}, "model.output.tensor: expected boxes"),
    "output layout": ({"output": OutputSpec(tensor="output0", layout="end_to_end")}, "model.output.layout"),
    "class count": ({"class_names": ("a", "b", "c")}, "axis 1 of size 7 .raw, 3 classes."),
}


@pytest.mark.parametrize(("changes", "words"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_model_that_contradicts_the_manifest_is_refused_naming_the_field(model_file, changes, words):
    with pytest.raises(BundleError, match=words):
        open_engine(model_file, model_spec(**changes), CPU)


def test_all_contradictions_are_named_at_once(model_file):
    changes = {"runtime": runtime_spec(onnx_opset=16, onnx_ir=9), "class_names": ("a",)}
    with pytest.raises(BundleError) as caught:
        open_engine(model_file, model_spec(**changes), CPU)
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("version", ["1.17", "1.17.0", "1.31.1"])
def test_the_installed_runtime_is_new_enough(model_file, version):
    open_engine(model_file, model_spec(runtime=runtime_spec(onnxruntime_min=version)), CPU)


def with_batch(dimension) -> bytes:
    model = onnx.load_from_string(colour_stub())
    first = model.graph.input[0].type.tensor_type.shape.dim[0]
    first.ClearField("dim_param")
    first.dim_value = dimension
    return model.SerializeToString()


def test_a_fixed_batch_is_refused(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(with_batch(1))
    with pytest.raises(BundleError, match="a batch of any size"):
        open_engine(file, model_spec(), CPU)


@pytest.mark.parametrize("data", [b"", b"not a model", tiny_onnx()[:500]], ids=["empty", "text", "cut"])
def test_a_broken_model_is_a_bundle_error_naming_the_file(tmp_path, data):
    file = tmp_path / "model.onnx"
    file.write_bytes(data)
    with pytest.raises(BundleError, match=r"model\.onnx"):
        open_engine(file, model_spec(), CPU)


# --- versions read from the file without the onnx package ---------------------------------------------------------


@pytest.mark.parametrize("data", [colour_stub(), tiny_onnx()], ids=["colour stub", "tiny"])
def test_versions_in_the_file(tmp_path, data):
    file = tmp_path / "model.onnx"
    file.write_bytes(data)
    assert read_onnx_header(file) == OnnxHeader(builders.IR, builders.OPSET)


def test_the_standard_operator_set_is_meant(tmp_path):
    model = onnx.load_from_string(colour_stub())
    model.opset_import.insert(0, onnx.helper.make_opsetid("com.microsoft", 1))
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 4))
    file = tmp_path / "model.onnx"
    file.write_bytes(model.SerializeToString())
    assert read_onnx_header(file).opset == builders.OPSET


@pytest.mark.parametrize("data", [b"", b"\x08", b"\xff" * 30, b"\x0b\x00", b"\x08\x07"])
def test_other_files_are_no_onnx(tmp_path, data):
    file = tmp_path / "model.onnx"
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"cut off|longer than|does not exist|no IR version"):
        read_onnx_header(file)
