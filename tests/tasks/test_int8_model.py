"""The quantised file: what quantising everything does (A13), what stays in the file, and that it is made alike."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest

from builders import CPU, model_spec, tiny_onnx
from data_contracts.bundle import CalibrationMethod
from serving.engines import EngineOptions, open_engine
from tasks.quantising.int8_model import Unquantisable, calibrate, load_named, write_int8
from tasks.quantising.onnx_head import head_nodes

INT8 = EngineOptions(provider="cpu", allow_fallback=False, threads=1, precision="int8")


def tensors(count: int = 6) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((1, 3, 64, 64), np.float32) for _ in range(count)]


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    """The tiny detector, with a note of its exporter."""
    model = onnx.load_from_string(tiny_onnx())
    onnx.helper.set_model_props(model, {"names": "{0: 'red'}"})
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def quantised(model_file: Path, *, whole: bool = False, method: CalibrationMethod = "minmax") -> Path:
    model = load_named(model_file)
    ranges = calibrate(model_file, tensors(), "images", method, 1)
    target = model_file.with_name("int8.onnx")
    write_int8(model, target, ranges, () if whole else head_nodes(model))
    return target


def scores(file: Path, options: EngineOptions) -> np.ndarray:
    return np.concatenate([open_engine(file, model_spec(), options).run(tensor)[:, 4:] for tensor in tensors()])


def test_quantised_as_a_whole_the_scores_are_lost(model_file: Path):
    exact, whole = scores(model_file, CPU), scores(quantised(model_file, whole=True), INT8)
    assert exact.min() > 0.02
    assert exact.max() > 0.4
    assert whole.min() == whole.max() == 0.0


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_with_the_head_in_float_they_stay(model_file: Path, method: CalibrationMethod):
    exact, others = scores(model_file, CPU), scores(quantised(model_file, method=method), INT8)
    assert 0 < np.abs(exact - others).max() < 0.05


def test_it_keeps_versions_tensors_and_what_the_exporter_wrote(model_file: Path):
    before, after = onnx.load(model_file), onnx.load(quantised(model_file))
    assert [(one.domain, one.version) for one in after.opset_import] == [("", 17)]
    assert after.ir_version == before.ir_version
    assert after.graph.input[0] == before.graph.input[0]
    assert after.graph.output[0] == before.graph.output[0]
    assert ("names", "{0: 'red'}") in [(one.key, one.value) for one in after.metadata_props]


def test_the_same_pictures_give_the_same_bytes(model_file: Path):
    first = quantised(model_file).read_bytes()
    assert quantised(model_file).read_bytes() == first


def test_around_zero_biases_stay_in_float(model_file: Path):
    model = load_named(model_file)
    target = model_file.with_name("symmetric.onnx")
    ranges = calibrate(model_file, tensors(), "images", "minmax", 1)
    write_int8(model, target, ranges, head_nodes(model), symmetric=True)
    zero_points = [one for one in onnx.load(target).graph.initializer if one.name.endswith("zero_point")]
    assert zero_points
    assert all(not onnx.numpy_helper.to_array(one).any() for one in zero_points)


def test_the_tools_say_nothing_and_leave_the_log_as_it_was(
    model_file: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    quantised(model_file, method="percentile")
    assert (root.level, list(root.handlers)) == before
    assert (capsys.readouterr().out, caplog.records) == ("", [])


def test_what_they_cannot_do_is_one_kind_of_error(model_file: Path):
    (model_file.parent / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(Unquantisable, match="Error"):
        load_named(model_file.parent / "broken.onnx")
    with pytest.raises(Unquantisable, match="images"):
        calibrate(model_file, [np.zeros((1, 3, 8, 8), np.float32)], "images", "minmax", 1)
