from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu as script
from benchmarks import gpu_start
from benchmarks.gpu import conclude, main, try_all
from benchmarks.gpu_model import model_files
from benchmarks.gpu_start import SIZES, Load, Placement, Start, Wish, read_profile, start
from benchmarks.own_process import in_own_process
from builders import make_bundle, tiny_onnx
from data_contracts.bundle import INT8_MODEL_FILE, MODEL_FILE
from data_contracts.errors import EngineError, OutsideSystemError, Problem
from serving import gpu
from serving.engine_types import Unusable

TENSORRT, CPU = "TensorrtExecutionProvider", "CPUExecutionProvider"
FIRST = Start(open_s=40.0, providers=(TENSORRT, CPU))
SECOND = Start(
    open_s=2.0,
    providers=(TENSORRT, CPU),
    placement=Placement({TENSORRT: 1, CPU: 2}, {TENSORRT: 990, CPU: 10}),
    batch_s={1: 0.001, 8: 0.004},
    loads=(Load(load=0.8, per_s=1600, p50_ms=2.5, p99_ms=6.0, refused=0),),
)


def test_without_a_gpu_it_says_so_and_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> None:
        raise Unusable("no NVIDIA GPU here")

    monkeypatch.setattr(gpu, "read_gpu", none)
    monkeypatch.setenv("PASSLINE_HOME", str(tmp_path))
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["--json", str(tmp_path / "gpu.json")]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    printed = capsys.readouterr().out
    assert "nothing measured: no NVIDIA GPU here" in printed
    assert "not decided here" in printed


def test_tables_and_bars() -> None:
    slow = replace(SECOND, open_s=30.0, placement=Placement({TENSORRT: 2, CPU: 9}, {TENSORRT: 800, CPU: 200}))
    measured = conclude({"fp16": (FIRST, SECOND), "int8": (FIRST, slow)}, ["NVIDIA L4"], quick=False)
    ratio, share = measured.bars
    assert (ratio.name, ratio.value, ratio.holds) == ("second_start", 0.75, False)
    assert (share.name, share.value, share.holds) == ("tensorrt_time_share", 0.8, False)
    starts, batches, loads = measured.tables
    assert starts.rows[0] == ("fp16", "40.0", "2.0", TENSORRT, f"2 {CPU}, 1 {TENSORRT}")
    assert ("8", "4.00 (2000)", "4.00 (2000)") in batches.rows
    assert ("4", "", "") in batches.rows
    assert loads.rows[0] == ("fp16", "1600", "80%", "2.50", "6.00", "0")


def test_each_start_has_a_process_of_its_own_and_one_failure_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, bool, bool]] = []

    def fake(function: Any, wish: Wish, *, limit_s: float) -> Start:
        asked.append((wish.precision, wish.measures, limit_s > 0))
        if wish.precision == "int8":
            raise EngineError("the bundle has no model.int8.onnx")
        return SECOND if wish.measures else FIRST

    monkeypatch.setattr(script, "in_own_process", fake)
    found, missing = try_all(tmp_path, tmp_path, time.monotonic() + 100, quick=False)
    assert asked == [
        ("fp16", False, True), ("fp16", True, True), ("int8", False, True), ("fp32", False, True), ("fp32", True, True),
    ]  # fmt: skip
    assert list(found) == ["fp16", "fp32"]
    assert missing == ["int8: the bundle has no model.int8.onnx"]


def test_without_any_engine_it_could_not_measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fake(*_: object, limit_s: float) -> Start:
        raise EngineError("its libraries did not load")

    monkeypatch.setattr(script, "in_own_process", fake)
    with pytest.raises(EngineError, match="its libraries did not load"):
        try_all(tmp_path, tmp_path, time.monotonic() + 100, quick=False)


def test_a_start_is_measured_whatever_the_provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same code with the CPU in the place of TensorRT."""
    monkeypatch.setattr(gpu_start, "QUICK_LOAD_S", 0.2)
    bundle = make_bundle(tmp_path, model=tiny_onnx())
    wish = Wish(bundle, "fp32", tmp_path / "engines", quick=True, measures=True, provider="cpu")
    one = start(wish)
    assert one.providers == (CPU,)
    assert one.placement.share("cpu") == 1.0
    assert one.placement.nodes[CPU] >= 5
    assert list(one.batch_s) == list(SIZES)
    assert all(0 < load.load <= 0.8 and load.per_s <= 2000 for load in one.loads)
    assert all(0 < load.p50_ms <= load.p99_ms for load in one.loads)
    assert start(replace(wish, measures=False)).batch_s == {}


def test_a_profile_tells_where_nodes_ran() -> None:
    node = {"cat": "Node", "dur": 10}
    events = [
        {"cat": "Session", "name": "model_run", "dur": 99, "args": {}},
        *2 * [node | {"name": "trt_kernel_time", "args": {"provider": TENSORRT}}],
        node | {"name": "concat_kernel_time", "args": {"provider": CPU}},
        node | {"name": "concat_fence_before", "args": {"provider": CPU}},
    ]
    placement = read_profile(events)
    assert (placement.nodes, placement.micros) == ({TENSORRT: 1, CPU: 1}, {TENSORRT: 20, CPU: 10})
    assert placement.share("tensorrt") == pytest.approx(2 / 3)
    assert Placement().share("tensorrt") == 0.0


def test_the_quantised_file_is_made_beside_a_copy_of_the_bundle(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundles", model=tiny_onnx())
    files, (note,) = model_files(bundle, tmp_path, tmp_path / "files")
    assert (files / INT8_MODEL_FILE).is_file()
    assert (files / MODEL_FILE).read_bytes() == tiny_onnx()
    assert not (bundle / INT8_MODEL_FILE).exists()
    assert "made here" in note


# --- functions in a process of their own --------------------------------------------------------------------------


def test_results_and_errors_come_back() -> None:
    assert in_own_process(os.path.basename, "a/b") == "b"
    with pytest.raises(ValueError, match="invalid literal"):
        in_own_process(int, "x")


def test_what_dies_or_hangs_is_told_and_gone() -> None:
    with pytest.raises(OutsideSystemError, match="ended with status 3"):
        in_own_process(os._exit, 3)
    with pytest.raises(OutsideSystemError, match="no result within 0 s"):
        in_own_process(time.sleep, 60.0, limit_s=0.2)


def test_own_errors_cross_processes(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        in_own_process(_refuse)
    assert caught.value.problems == (Problem("engine", "one", "none", "Install it."),)


def _refuse() -> None:
    raise EngineError(Problem("engine", "one", "none", "Install it."))
