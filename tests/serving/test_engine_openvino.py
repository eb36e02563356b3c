from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from builders import CPU, model_spec, tiny_onnx
from data_contracts.errors import EngineError
from serving import engine_openvino, openvino_runtime
from serving.engine_types import Unusable
from serving.engines import EngineOptions, open_engine

WH = (64, 64)


def wish(**changes) -> EngineOptions:
    fields = {"provider": "openvino", "allow_fallback": False, "threads": 1}
    return EngineOptions(**(fields | changes))


def pictures(seed: int, count: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 3, WH[1], WH[0]), np.float32)


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    file = tmp_path / "model.onnx"
    file.write_bytes(tiny_onnx())
    return file


def test_it_answers_as_onnx_runtime_does_for_every_batch_size(model_file: Path) -> None:
    engine, reference = open_engine(model_file, model_spec(), wish()), open_engine(model_file, model_spec(), CPU)
    assert (engine.provider, engine.precision, engine.degraded) == ("openvino", "fp32", "")
    for count in (1, 3, 2):
        batch = pictures(count, count)
        given = batch.copy()
        assert engine.run(batch) == pytest.approx(reference.run(batch), rel=1e-3, abs=1e-3)
        assert np.array_equal(batch, given), "the caller's pictures were written to"


def test_a_later_call_leaves_an_earlier_answer_alone(model_file: Path) -> None:
    engine = open_engine(model_file, model_spec(), wish())
    answer = engine.run(pictures(1))
    kept = answer.copy()
    assert not np.array_equal(engine.run(pictures(2)), kept)
    assert np.array_equal(answer, kept)


def test_callers_in_all_streams_get_their_own_answers(model_file: Path) -> None:
    """Twice as many callers as streams: each must see the answer to its own pictures."""
    engine = open_engine(model_file, model_spec(), wish(streams=2))
    batches = [pictures(seed, 1 + seed % 3) for seed in range(4)]
    expected = [engine.run(batch) for batch in batches]
    wrong: list[int] = []

    def call(index: int) -> None:
        answers = (engine.run(batches[index]) for _ in range(25))
        wrong.extend(index for answer in answers if not np.allclose(answer, expected[index], atol=1e-4))

    callers = [threading.Thread(target=call, args=(index,)) for index in range(len(batches))]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


FIRST_CALLS = """
import faulthandler, sys, threading
from pathlib import Path
import numpy as np
from builders import model_spec
from serving.engines import EngineOptions, open_engine
faulthandler.dump_traceback_later(20, exit=True)
engine = open_engine(Path(sys.argv[1]), model_spec(), EngineOptions("openvino", False, threads=1, streams=4))
sys.setswitchinterval(1e-6)
together, batch = threading.Barrier(4), np.zeros((1, 3, 64, 64), np.float32)
def call():
    together.wait()
    engine.run(batch)
callers = [threading.Thread(target=call) for _ in range(4)]
for caller in callers: caller.start()
for caller in callers: caller.join()
"""


def test_first_calls_of_a_process_at_once_do_not_wait_for_each_other_for_ever(model_file: Path) -> None:
    """Without a first use in a single thread three of four such processes stood still."""
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root}:{root / 'tests'}"}
    command = [sys.executable, "-c", FIRST_CALLS, str(model_file)]
    processes = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]


def test_a_failed_call_is_an_engine_error_and_the_next_one_works(model_file: Path) -> None:
    engine = open_engine(model_file, model_spec(), wish())
    with pytest.raises(EngineError, match="the call failed"):
        engine.run(np.zeros((1, 3, 32, 64), np.float32))
    assert engine.run(pictures(0)).shape == (1, 6, 64)


def test_threads_and_streams_reach_the_compiled_model(model_file: Path) -> None:
    """OpenVINO takes no more streams than the machine has cores, so no more are asked for here."""
    streams = min(2, len(os.sched_getaffinity(0)))
    options = wish(threads=1, streams=streams)
    network = openvino_runtime.openvino_core().read_model(str(model_file))
    asked = engine_openvino.compile_options(options)
    compiled = openvino_runtime.openvino_core().compile_model(network, "CPU", asked)
    assert compiled.get_property("INFERENCE_NUM_THREADS") == compiled.get_property("NUM_STREAMS") == streams
    assert compiled.get_property("ENABLE_CPU_PINNING") is False
    assert compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name() == "f32"


def test_bf16_where_the_cpu_has_it(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "BF16" in openvino_runtime.cpu_capabilities():
        engine = open_engine(model_file, model_spec(), wish(precision="bf16"))
        assert (engine.precision, engine.run(pictures(0)).dtype) == ("bf16", np.float32)
    monkeypatch.setattr(engine_openvino, "cpu_capabilities", lambda: ("FP32", "INT8"))
    with pytest.raises(EngineError, match="no BF16 instructions, only FP32, INT8"):
        open_engine(model_file, model_spec(), wish(precision="bf16"))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_host_without_openvino_says_so(model_file: Path, monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    """As on a platform that has no wheel: the reason is OpenVINO, whatever the precision."""

    def missing() -> None:
        raise Unusable("OpenVINO does not load here: No module named 'openvino'")

    openvino_runtime._core.cache_clear()
    monkeypatch.setattr(openvino_runtime, "load_openvino", missing)
    try:
        with pytest.raises(EngineError, match="OpenVINO does not load here"):
            open_engine(model_file, model_spec(), wish(precision=precision))
        engine = open_engine(model_file, model_spec(), wish(precision=precision, allow_fallback=True))
        assert (engine.provider, engine.precision) == ("cpu", "fp32")
        assert "OpenVINO does not load here" in engine.degraded
    finally:
        openvino_runtime._core.cache_clear()


REPORTER = """
    import os
    from pathlib import Path

    class Telemetry:
        def __init__(self, *args, **kwargs): pass
        def send_event(self, *args, **kwargs):
            Path(os.environ["REPORTED"]).write_text(str(args))
"""
LOADERS = {
    "plain import": ("import openvino", True),
    "through our module": ("from serving.openvino_runtime import load_openvino; load_openvino()", False),
    "an engine's core": ("from serving.openvino_runtime import openvino_core; openvino_core()", False),
}


@pytest.mark.parametrize(("code", "reports"), LOADERS.values(), ids=LOADERS)
def test_nothing_is_reported_even_where_the_reporting_package_is_installed(
    tmp_path: Path, code: str, reports: bool
) -> None:
    """The plain import shows that the fake package would report."""
    package = tmp_path / "openvino_telemetry"
    (package / "backend").mkdir(parents=True)
    (package / "__init__.py").write_text(textwrap.dedent(REPORTER))
    (package / "backend" / "__init__.py").write_text("")
    (package / "backend" / "backend_ga4.py").write_text("")
    root = Path(__file__).resolve().parents[2]
    environment = {"PYTHONPATH": f"{tmp_path}:{root}", "REPORTED": str(tmp_path / "reported"), "PATH": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert (tmp_path / "reported").exists() == reports


def test_importing_the_engines_does_not_load_openvino() -> None:
    code = "import serving.engines, sys; assert 'openvino' not in sys.modules"
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
