from __future__ import annotations

import onnx
import pytest

import builders
from builders import CPU, colour_stub, model_spec, tiny_onnx
from data_contracts.bundle import InputSpec, OutputSpec, RuntimeSpec
from data_contracts.errors import BundleError
from serving.engines import EngineOptions, Provider, open_engine
from serving.onnx_header import OnnxHeader, read_onnx_header


@pytest.fixture
def model_file(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(colour_stub())
    return file


# --- the model file against the manifest --------------------------------------------------------------------------


def input_spec(**changes) -> InputSpec:
    fields = {"tensor": "images", "wh": (64, 64), "colour_order": "rgb", "dtype": "float32", "divisor": 255.0}
    return InputSpec(**(fields | changes))


def runtime_spec(**changes) -> RuntimeSpec:
    return RuntimeSpec(**({"onnx_opset": 17, "onnx_ir": 8, "onnxruntime_min": "1.17.0"} | changes))


CONTRADICTIONS = {
    "opset": ({"runtime": runtime_spec(onnx_opset=16)}, "model.runtime.onnx_opset: expected 16, got 17"),
    "ir": ({"runtime": runtime_spec(onnx_ir=9)}, "model.runtime.onnx_ir: expected 9, got 8"),
    "input tensor": ({"input": input_spec(tensor="pictures")}, "model.input.tensor: expected pictures"),
    "input size": ({"input": input_spec(wh=(64, 32))}, r"model.input.wh: expected \(batch, 3, 32, 64\)"),
    "output tensor": ({"output": OutputSpec(tensor="boxes", layout="raw")}, "model.output.tensor: expected boxes"),
    "output layout": ({"output": OutputSpec(tensor="output0", layout="end_to_end")}, "model.output.layout"),
    "class count": ({"class_names": ("a", "b", "c")}, "axis 1 of size 7 .raw, 3 classes."),
}


@pytest.mark.parametrize("provider", ["cpu", "openvino"])
@pytest.mark.parametrize(("changes", "words"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_model_that_contradicts_the_manifest_is_refused_naming_the_field(
    model_file, provider: Provider, changes, words
):
    with pytest.raises(BundleError, match=words):
        open_engine(model_file, model_spec(**changes), EngineOptions(provider, allow_fallback=True, threads=1))


def test_an_old_onnx_runtime_is_refused_and_does_not_matter_to_another_engine(model_file):
    spec = model_spec(runtime=runtime_spec(onnxruntime_min="1.99.0"))
    with pytest.raises(BundleError, match=r"expected ONNX Runtime 1\.99\.0 or newer"):
        open_engine(model_file, spec, CPU)
    assert open_engine(model_file, spec, EngineOptions("openvino", allow_fallback=False, threads=1)).degraded == ""


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
