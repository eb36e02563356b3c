from __future__ import annotations

import numpy as np
import pytest

from builders import CPU, colour_stub, make_bundle, model_spec, tiny_onnx
from data_contracts.bundle import INT8_MODEL_FILE
from data_contracts.errors import BundleError, EngineError
from ort_fakes import ALL, FakeRuntime
from serving import engine_onnxruntime, engine_openvino, engines, gpu, ort
from serving.cpus import threads_from_quota
from serving.engine_types import Unusable
from serving.engines import PRECISIONS, PROVIDER_NAMES, EngineOptions, open_engine, possible_engines, session_options
from serving.gpu import GpuFacts

BATCH = np.zeros((1, 3, 64, 64), np.float32)


@pytest.fixture
def model_file(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(colour_stub())
    return file


def wish(provider: str, *, allow_fallback: bool = False, **more) -> EngineOptions:
    return EngineOptions(provider=provider, allow_fallback=allow_fallback, threads=1, **more)


def test_it_answers_one_output_per_picture(model_file):
    engine = open_engine(model_file, model_spec(), CPU)
    assert (engine.provider, engine.precision, engine.threads, engine.streams) == ("cpu", "fp32", 1, 1)
    assert engine.degraded == ""
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


@pytest.mark.parametrize(("quota", "threads"), [("100000 100000", 1), ("400000 100000", 2)], ids=["1 CPU", "4 CPUs"])
def test_the_session_gets_its_worker_s_share_of_the_quota(monkeypatch, tmp_path, model_file, quota, threads):
    """Two workers on a host of 64 cores: neither the host's cores nor 0 ever reach the session."""
    asked = []
    real = engine_onnxruntime.session_options
    monkeypatch.setattr(engine_onnxruntime, "session_options", lambda count: asked.append(count) or real(count))
    (tmp_path / "cpu.max").write_text(quota)
    (tmp_path / "self").write_text("0::/\n")
    share = threads_from_quota(2, cpus=64, cgroup_root=tmp_path, own_cgroups=tmp_path / "self")
    engine = open_engine(model_file, model_spec(), EngineOptions("cpu", allow_fallback=False, threads=share))
    assert (asked, engine.threads) == ([threads], threads)


@pytest.mark.parametrize(
    ("field", "value"), [("threads", 0), ("threads", -1), ("streams", 0), ("max_batch", 0)], ids=str
)
def test_a_number_for_the_runtime_to_guess_is_refused(field, value):
    with pytest.raises(ValueError, match="expected 1 or more"):
        EngineOptions(**({"provider": "cpu", "allow_fallback": False, "threads": 1} | {field: value}))


class Session:
    """Answers like a session that was told how many outputs to give, and notes its run options."""

    def __init__(self, short_by: int = 0) -> None:
        self.short_by, self.run_options = short_by, []

    def run(self, names, feeds, run_options):
        (batch,) = feeds.values()
        self.run_options.append(run_options)
        return [np.zeros((len(batch) - self.short_by, 6, 16), np.float32)]


def test_too_few_answers_are_an_error(model_file):
    engine = open_engine(model_file, model_spec(), CPU)
    engine._session = Session(short_by=1)
    with pytest.raises(EngineError, match="expected 2 outputs, got 1"):
        engine.run(np.zeros((2, 3, 64, 64), np.float32))


@pytest.mark.parametrize(
    ("shape", "given_back"),
    [((1, 3, 640, 640), False), ((2, 3, 640, 640), True), ((8, 3, 64, 64), False), ((1, 3, 1280, 1280), False)],
    ids=["one picture", "two large ones", "many small ones", "one very large picture"],
)
def test_only_large_batches_give_their_memory_back(model_file, shape, given_back):
    engine = open_engine(model_file, model_spec(), CPU)
    engine._session = session = Session()
    engine.run(np.zeros(shape, np.float32))
    (options,) = session.run_options
    assert (options is not None) == given_back
    if given_back:
        assert options.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"


# --- policy: what was wished for, or a refusal, or a fallback that says so ----------------------------------------


@pytest.fixture
def fake_runtime(monkeypatch):
    real = ort.onnxruntime
    monkeypatch.setattr(ort, "load_gpu_libraries", lambda: None)

    def install(**facts) -> FakeRuntime:
        fake = FakeRuntime(real, **facts)
        monkeypatch.setattr(ort, "onnxruntime", fake)
        return fake

    return install


MISSING = {
    "not compiled in": ("cuda", {"compiled": ["cpu"], "usable": ["cpu"]}, "has only CPUExecutionProvider"),
    "libraries missing": ("cuda", {"compiled": ALL, "usable": ["cpu"]}, "took CPUExecutionProvider"),
    "tensorrt ends on cuda": ("tensorrt", {"compiled": ALL, "usable": ["cuda", "cpu"]}, "took CUDAExecutionProvider"),
    "device out of memory": ("cuda", {"compiled": ALL, "usable": ALL, "errors": [RuntimeError("CUDA failure 2")]},
                             "CUDA failure 2"),
}  # fmt: skip


@pytest.mark.parametrize(("provider", "facts", "reason"), MISSING.values(), ids=MISSING)
def test_a_missing_provider_is_refused_naming_wish_and_reason(fake_runtime, model_file, provider, facts, reason):
    fake_runtime(**facts)
    with pytest.raises(EngineError, match=reason) as caught:
        open_engine(model_file, model_spec(), wish(provider))
    assert f"expected {provider} with fp32" in str(caught.value)


@pytest.mark.parametrize(("provider", "facts", "reason"), MISSING.values(), ids=MISSING)
def test_an_allowed_fallback_runs_on_the_cpu_and_says_so(fake_runtime, model_file, provider, facts, reason):
    fake = fake_runtime(**facts)
    engine = open_engine(model_file, model_spec(), wish(provider, allow_fallback=True, streams=2))
    assert (engine.provider, engine.precision, engine.streams) == ("cpu", "fp32", 2)
    assert f"wanted provider {provider} with fp32, running on cpu with fp32" in engine.degraded
    assert reason in engine.degraded
    assert fake.asked[-1] == ["CPUExecutionProvider"]
    assert engine.run(BATCH).shape == (1, 6, 16)


@pytest.mark.parametrize("provider", ALL)
def test_a_usable_provider_is_used(fake_runtime, model_file, provider):
    fake_runtime(compiled=ALL, usable=ALL)
    engine = open_engine(model_file, model_spec(), wish(provider))
    assert (engine.provider, engine.degraded) == (provider, "")


def test_cuda_does_not_round_to_tf32(fake_runtime, model_file):
    fake = fake_runtime(compiled=ALL, usable=ALL)
    open_engine(model_file, model_spec(), wish("cuda"))
    (name, options), last = fake.asked[-1]
    assert (name, options["use_tf32"], last) == (PROVIDER_NAMES["cuda"], "0", PROVIDER_NAMES["cpu"])


OTHER_PRECISIONS = [("cpu", "bf16"), ("cpu", "fp16"), ("openvino", "fp16"), ("cuda", "fp16"), ("tensorrt", "bf16")]


@pytest.mark.parametrize(("provider", "precision"), OTHER_PRECISIONS)
def test_a_precision_that_the_provider_does_not_run_is_refused(model_file, provider, precision):
    with pytest.raises(EngineError, match=rf"{provider} runs .* only"):
        open_engine(model_file, model_spec(), wish(provider, precision=precision))
    engine = open_engine(model_file, model_spec(), wish(provider, precision=precision, allow_fallback=True))
    assert (engine.provider, engine.precision) == ("cpu", "fp32")
    assert f"wanted provider {provider} with {precision}" in engine.degraded


@pytest.fixture
def bundle_files(tmp_path):
    return make_bundle(tmp_path / "bundles")


def test_a_bundle_has_a_file_per_precision(bundle_files):
    """The quantised file answers otherwise here, so that it shows which one was loaded."""
    with pytest.raises(EngineError, match=f"the bundle has no {INT8_MODEL_FILE}"):
        open_engine(bundle_files, model_spec(), wish("cpu", precision="int8"))
    (bundle_files / INT8_MODEL_FILE).write_bytes(colour_stub(gain=0.5))
    red = np.zeros((1, 3, 64, 64), np.float32)
    red[:, 0] = 1
    for provider in ("cpu", "openvino"):
        best = [
            float(open_engine(bundle_files, model_spec(), wish(provider, precision=precision)).run(red)[0, 4].max())
            for precision in ("fp32", "int8")
        ]
        assert best == pytest.approx([1.0, 0.5]), provider


def test_the_fallback_of_a_quantised_engine_is_the_portable_model(fake_runtime, bundle_files):
    (bundle_files / INT8_MODEL_FILE).write_bytes(colour_stub(gain=0.5))
    fake_runtime(compiled=["cpu"], usable=["cpu"])
    options = wish("tensorrt", precision="int8", allow_fallback=True)
    assert open_engine(bundle_files, model_spec(), options).precision == "fp32"
    assert open_engine(bundle_files / INT8_MODEL_FILE, model_spec(), options).precision == "int8"


# --- what this host could be asked for ----------------------------------------------------------------------------


def test_all_engines_are_listed_reference_first(monkeypatch, bundle_files):
    monkeypatch.setattr(engine_openvino, "cpu_capabilities", lambda: ("FP32", "INT8"))
    listed = {(one.provider, one.precision): one.reason for one in possible_engines(bundle_files, ["openvino", "cpu"])}
    assert list(listed) == [
        ("cpu", "fp32"), ("cpu", "int8"), ("openvino", "fp32"), ("openvino", "bf16"), ("openvino", "int8"),
    ]  # fmt: skip
    assert listed["cpu", "fp32"] == listed["openvino", "fp32"] == ""
    assert listed["cpu", "int8"] == listed["openvino", "int8"] == f"the bundle has no {INT8_MODEL_FILE}"
    assert "no BF16 instructions" in listed["openvino", "bf16"]


def test_a_host_without_a_gpu_says_so_for_each_engine_that_needs_one(monkeypatch, fake_runtime, bundle_files):
    fake_runtime(compiled=ALL, usable=ALL)

    def no_gpu() -> GpuFacts:
        raise Unusable("no NVIDIA GPU here")

    monkeypatch.setattr(gpu, "read_gpu", no_gpu)
    reasons = {one.reason for one in possible_engines(bundle_files, ["cuda", "tensorrt"]) if one.precision != "int8"}
    assert reasons == {"no NVIDIA GPU here"}


def test_a_host_with_a_gpu(monkeypatch, fake_runtime, bundle_files):
    fake_runtime(compiled=ALL, usable=ALL)
    (bundle_files / INT8_MODEL_FILE).write_bytes(colour_stub())
    monkeypatch.setattr(engines, "load_gpu_libraries", lambda: None)
    monkeypatch.setattr(gpu, "read_gpu", lambda: GpuFacts(name="NVIDIA L4", capability="8.9", driver="580.65.06"))
    monkeypatch.setattr(gpu, "tensorrt_version", lambda: "10.16.1")
    listed = possible_engines(bundle_files, ["tensorrt", "cuda"])
    assert {(one.provider, one.precision) for one in listed if not one.reason} == {
        (provider, precision) for provider in ("cuda", "tensorrt") for precision in PRECISIONS[provider]
    }


@pytest.mark.parametrize("data", [b"", b"not a model", tiny_onnx()[:500]], ids=["empty", "text", "cut"])
@pytest.mark.parametrize("provider", ["cpu", "openvino"])
def test_a_broken_model_is_a_bundle_error_naming_the_file(tmp_path, provider, data):
    file = tmp_path / "model.onnx"
    file.write_bytes(data)
    with pytest.raises(BundleError, match=r"model\.onnx"):
        open_engine(file, model_spec(), wish(provider, allow_fallback=True))
