"""TensorRT with a fake runtime and a fake GPU: keys, folders, one rebuild, policy, progress."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import colour_stub, make_bundle, model_spec
from data_contracts.bundle import INT8_MODEL_FILE
from data_contracts.errors import BundleError, EngineError
from ort_fakes import ALL, ENGINE_FILE, FakeRuntime
from serving import engine_tensorrt, gpu, ort
from serving.engine_cache import KEY_FILE, BuildHost, EngineFolder, EngineKey
from serving.engine_tensorrt import engine_key, open_tensorrt, reported, tensorrt_options
from serving.engine_types import Unusable
from serving.engines import EngineOptions, open_engine
from serving.gpu import GpuFacts, parse_gpu, read_gpu

GPU = GpuFacts(name="NVIDIA L4", capability="8.9", driver="580.65.06")
HOST = BuildHost(onnxruntime="1.31.1", tensorrt="10.16.1", driver=GPU.driver, gpu=GPU.name, capability=GPU.capability)
KEY = EngineKey(
    bundle="b" * 64, model="a" * 64, precision="fp16", shapes="images:1x3x64x64 to images:8x3x64x64",
    workspace_bytes=None, host=HOST,
)  # fmt: skip


def wish(cache: Path | None, **changes: Any) -> EngineOptions:
    fields = {"provider": "tensorrt", "allow_fallback": False, "threads": 1, "precision": "fp16", "engine_cache": cache}
    return EngineOptions(**(fields | changes))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    """A host on which TensorRT works."""
    return install(monkeypatch)


def install(monkeypatch: pytest.MonkeyPatch, **facts: Any) -> FakeRuntime:
    fake = FakeRuntime(ort.onnxruntime, **({"compiled": ALL, "usable": ALL} | facts))
    monkeypatch.setattr(ort, "load_gpu_libraries", lambda: None)
    monkeypatch.setattr(ort, "onnxruntime", fake)
    monkeypatch.setattr(gpu, "read_gpu", lambda: GPU)
    monkeypatch.setattr(gpu, "tensorrt_version", lambda: "10.16.1")
    return fake


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundles")


def only_folder(cache: Path) -> Path:
    (folder,) = (path for path in cache.glob("*-fp16-*") if path.is_dir())
    return folder


# --- the key ------------------------------------------------------------------------------------------------------

OTHER = {
    "bundle": {"bundle": "c" * 64},
    "model": {"model": "d" * 64},
    "precision": {"precision": "int8"},
    "shapes": {"shapes": "images:1x3x64x64 to images:16x3x64x64"},
    "workspace": {"workspace_bytes": 2**30},
    **{
        field: {"host": HOST.model_copy(update={field: "another"})}
        for field in ("onnxruntime", "tensorrt", "driver", "gpu", "capability")
    },
}


@pytest.mark.parametrize("changes", OTHER.values(), ids=OTHER)
def test_any_change_gives_another_folder(changes: dict[str, Any]) -> None:
    assert KEY.model_copy(update=changes).folder_name != KEY.folder_name


def test_the_same_gives_the_same_folder_and_one_can_read_it() -> None:
    assert KEY.model_copy().folder_name == KEY.folder_name
    assert KEY.folder_name.startswith("bbbbbbbbbbbb-fp16-")


def test_timings_are_shared_by_all_models_of_one_gpu_and_its_libraries(tmp_path: Path) -> None:
    timing = EngineFolder(tmp_path, KEY).timing
    assert EngineFolder(tmp_path, KEY.model_copy(update={"bundle": "c" * 64, "model": "d" * 64})).timing == timing
    other = KEY.model_copy(update={"host": HOST.model_copy(update={"driver": "581.0"})})
    assert EngineFolder(tmp_path, other).timing != timing


def test_the_key_names_bundle_model_libraries_gpu_and_shapes(host: FakeRuntime, bundle: Path, tmp_path: Path) -> None:
    open_engine(bundle, model_spec(), wish(tmp_path / "engines", max_batch=4, workspace_bytes=2**28))
    key = json.loads((only_folder(tmp_path / "engines") / KEY_FILE).read_text())
    assert key == {
        "bundle": bundle.name,
        "model": engine_key(bundle / "model.onnx", model_spec(), wish(None)).model,
        "precision": "fp16",
        "shapes": "images:1x3x64x64 to images:4x3x64x64",
        "workspace_bytes": 2**28,
        "host": HOST.model_dump(),
    }


# --- build, reuse, rebuild ----------------------------------------------------------------------------------------


def test_a_second_start_reuses_the_engine(host: FakeRuntime, bundle: Path, tmp_path: Path) -> None:
    for _ in range(2):
        engine = open_engine(bundle, model_spec(), wish(tmp_path / "engines"))
        assert (engine.provider, engine.precision, engine.degraded) == ("tensorrt", "fp16", "")
        assert engine.run(np.zeros((1, 3, 64, 64), np.float32)).shape == (1, 6, 16)
    assert host.built == 1


def test_an_interrupted_build_is_thrown_away(host: FakeRuntime, bundle: Path, tmp_path: Path) -> None:
    folder = EngineFolder(tmp_path, engine_key(bundle / "model.onnx", model_spec(), wish(None)))
    folder.path.mkdir()
    (folder.path / ENGINE_FILE).write_text("half an eng")
    open_engine(bundle, model_spec(), wish(tmp_path))
    assert host.built == 1
    assert host.gpu_tries == 1, "nothing was tried with the left-over"
    assert folder.is_whole


def test_an_unreadable_engine_is_built_again_exactly_once(
    host: FakeRuntime, bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    open_engine(bundle, model_spec(), wish(tmp_path))
    (only_folder(tmp_path) / ENGINE_FILE).write_text("garbage")
    said: list[str] = []
    assert open_tensorrt(bundle, model_spec(), wish(tmp_path), said.append).provider == "tensorrt"
    assert (host.built, host.gpu_tries) == (2, 3)
    assert "could not deserialize" in said[0]
    open_engine(bundle, model_spec(), wish(tmp_path))
    assert host.built == 2


@pytest.mark.parametrize("allow_fallback", [False, True], ids=["refuse", "fallback"])
def test_when_the_rebuild_fails_too_the_policy_decides(
    host: FakeRuntime, bundle: Path, tmp_path: Path, allow_fallback: bool
) -> None:
    open_engine(bundle, model_spec(), wish(tmp_path))
    host._errors = [RuntimeError("cannot read the engine"), RuntimeError("the builder failed")]
    before = host.gpu_tries
    options = wish(tmp_path, allow_fallback=allow_fallback)
    if allow_fallback:
        engine = open_engine(bundle, model_spec(), options)
        assert (engine.provider, engine.precision) == ("cpu", "fp32")
        assert "wanted provider tensorrt with fp16" in engine.degraded
        assert "the builder failed" in engine.degraded
    else:
        with pytest.raises(EngineError, match="the builder failed"):
            open_engine(bundle, model_spec(), options)
    assert host.gpu_tries - before == 2
    assert not (only_folder(tmp_path) / KEY_FILE).exists(), "what failed must not look whole"


def test_a_first_build_that_fails_is_not_tried_again(host: FakeRuntime, bundle: Path, tmp_path: Path) -> None:
    host._errors = [RuntimeError("out of memory"), RuntimeError("not reached")]
    with pytest.raises(EngineError, match="out of memory"):
        open_engine(bundle, model_spec(), wish(tmp_path))
    assert host.gpu_tries == 1


def test_libraries_that_do_not_load_are_no_reason_to_throw_an_engine_away(
    monkeypatch: pytest.MonkeyPatch, host: FakeRuntime, bundle: Path, tmp_path: Path
) -> None:
    open_engine(bundle, model_spec(), wish(tmp_path))
    monkeypatch.setattr(host, "_usable", ["CUDAExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(EngineError, match="took CUDAExecutionProvider"):
        open_engine(bundle, model_spec(), wish(tmp_path))
    assert (only_folder(tmp_path) / KEY_FILE).exists()


def test_a_model_that_contradicts_the_manifest_is_the_bundle_s_fault(
    host: FakeRuntime, bundle: Path, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match=r"model\.output\.layout"):
        open_engine(bundle, model_spec(("a", "b", "c")), wish(tmp_path, allow_fallback=True))


def test_two_workers_at_once_build_one_engine(
    monkeypatch: pytest.MonkeyPatch, host: FakeRuntime, bundle: Path, tmp_path: Path
) -> None:
    """The lock belongs to an open file, so threads stand for processes here."""
    keep = host._keep_engine

    def slowly(folder: str | None) -> None:
        keep(folder)
        time.sleep(0.2)

    monkeypatch.setattr(host, "_keep_engine", slowly)
    with ThreadPoolExecutor(2) as workers:
        opened = [workers.submit(open_engine, bundle, model_spec(), wish(tmp_path)) for _ in range(2)]
        assert [one.result().provider for one in opened] == ["tensorrt", "tensorrt"]
    assert host.built == 1


def test_without_a_cache_it_is_built_at_every_start(host: FakeRuntime, bundle: Path) -> None:
    for _ in range(2):
        open_engine(bundle, model_spec(), wish(None))
    assert host.built == 2


@pytest.mark.parametrize("part", ["read_gpu", "tensorrt_version"])
def test_without_gpu_or_library_there_is_no_engine(
    monkeypatch: pytest.MonkeyPatch, host: FakeRuntime, bundle: Path, tmp_path: Path, part: str
) -> None:
    def missing() -> None:
        raise Unusable("not here")

    monkeypatch.setattr(gpu, part, missing)
    with pytest.raises(EngineError, match="not here"):
        open_engine(bundle, model_spec(), wish(tmp_path))
    assert host.gpu_tries == 0


# --- options and progress -----------------------------------------------------------------------------------------


def test_options_of_the_provider(tmp_path: Path) -> None:
    folder = EngineFolder(tmp_path, KEY)
    options = tensorrt_options(model_spec(), wish(tmp_path, max_batch=16, workspace_bytes=2**30), folder)
    assert options == {
        "trt_fp16_enable": "1",
        "trt_int8_enable": "0",
        "trt_profile_min_shapes": "images:1x3x64x64",
        "trt_profile_opt_shapes": "images:16x3x64x64",
        "trt_profile_max_shapes": "images:16x3x64x64",
        "trt_max_workspace_size": str(2**30),
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(folder.path),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(folder.timing),
    }


@pytest.mark.parametrize(("precision", "fp16", "int8"), [("fp32", "0", "0"), ("fp16", "1", "0"), ("int8", "1", "1")])
def test_precision(precision: Any, fp16: str, int8: str) -> None:
    options = tensorrt_options(model_spec(), wish(None, precision=precision), None)
    assert (options["trt_fp16_enable"], options["trt_int8_enable"]) == (fp16, int8)
    assert not [name for name in options if "cache" in name]


def test_the_provider_knows_these_options() -> None:
    """Names are read from the installed provider: a misspelt one would fail on the first host with a GPU."""
    library = Path(str(ort.onnxruntime.__file__)).parent / "capi" / "libonnxruntime_providers_tensorrt.so"
    if not library.is_file():
        pytest.skip("this platform's ONNX Runtime has no TensorRT provider")
    known = library.read_bytes()
    options = tensorrt_options(model_spec(), wish(None, workspace_bytes=1), EngineFolder(Path("/"), KEY))
    assert [name for name in options if name.encode() + b"\0" not in known] == []


def test_int8_takes_the_quantised_file(host: FakeRuntime, bundle: Path, tmp_path: Path) -> None:
    (bundle / INT8_MODEL_FILE).write_bytes(colour_stub(gain=0.5))
    red = np.zeros((1, 3, 64, 64), np.float32)
    red[:, 0] = 1
    engine = open_engine(bundle, model_spec(), wish(tmp_path, precision="int8"))
    assert float(engine.run(red)[0, 4].max()) == pytest.approx(0.5)


def test_a_long_build_is_reported_while_it_runs() -> None:
    said: list[str] = []
    with reported("building", said.append, every_s=0.02):
        while len(said) < 3:
            time.sleep(0.005)
    assert said[0].startswith("building ... ")
    assert said[-1].startswith("building: over after ")


def test_a_short_one_is_not() -> None:
    said: list[str] = []
    with reported("loading", said.append):
        pass
    assert said == []


def test_building_and_loading_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, host: FakeRuntime, bundle: Path, tmp_path: Path
) -> None:
    words: list[str] = []
    real = engine_tensorrt.reported
    monkeypatch.setattr(engine_tensorrt, "reported", lambda text, say: words.append(text) or real(text, say))
    for _ in range(2):
        open_engine(bundle, model_spec(), wish(tmp_path))
    assert [text.split()[0] for text in words] == ["building", "loading"]


# --- the GPU ------------------------------------------------------------------------------------------------------


def fake_nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    folder.mkdir()
    file = folder / "nvidia-smi"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_the_gpu_that_cuda_sees_first_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'echo "$@" > "$(dirname "$0")/asked"; echo "NVIDIA L4, 8.9, 580.65.06"'
    fake_nvidia_smi(tmp_path / "bin", monkeypatch, script)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert read_gpu() == GPU
    assert (tmp_path / "bin" / "asked").read_text().strip().endswith("-i 1")


BROKEN = {
    "it fails": "echo 'Failed to initialize NVML' >&2; exit 9",
    "it lists nothing": "echo 'No devices were found'",
    "it is silent": "true",
}


@pytest.mark.parametrize("script", BROKEN.values(), ids=BROKEN)
def test_a_broken_driver_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    fake_nvidia_smi(tmp_path / "bin", monkeypatch, script)
    with pytest.raises(Unusable, match="no NVIDIA GPU here"):
        read_gpu()


def test_a_host_without_the_tool_has_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unusable, match="nvidia-smi does not answer"):
        read_gpu()


def test_the_first_of_several_gpus_counts() -> None:
    assert parse_gpu("NVIDIA L4, 8.9, 580.1\nNVIDIA A2, 8.6, 580.1\n").name == "NVIDIA L4"
