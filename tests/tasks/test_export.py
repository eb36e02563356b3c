from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from pydantic import ValidationError

from builders import tiny_onnx
from data_contracts.letterbox import ULTRALYTICS_LETTERBOX
from tasks.export import OLDEST_RUNTIME, ExportConfig, finish_onnx, model_spec, oldest_runtime, relative_difference
from tasks.yolo import OnnxFacts, onnx_facts

CONFIG = ExportConfig(
    opset=17,
    simplify=True,
    layout="raw",
    nms_iou=0.7,
    max_candidates=3000,
    max_detections=300,
    largest_difference=0.001,
)


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    model = onnx.load_from_string(tiny_onnx())
    for tensor in (*model.graph.input, *model.graph.output):
        for number, axis in enumerate(tensor.type.tensor_type.shape.dim):
            if number != 1:
                axis.dim_param = f"free{number}"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("simplify", [False, True])
def test_only_the_batch_stays_free_and_the_metadata_stay(model_file: Path, simplify: bool):
    names = onnx_facts_or_none(model_file)
    finish_onnx(model_file, 64, simplify=simplify)
    model = onnx.load(model_file)
    axes = model.graph.input[0].type.tensor_type.shape.dim
    assert [axis.dim_param or axis.dim_value for axis in axes] == ["batch", 3, 64, 64]
    out = model.graph.output[0].type.tensor_type.shape.dim
    assert out[0].dim_param == "batch"
    assert all(axis.dim_value for axis in out[1:])
    assert onnx_facts_or_none(model_file) == names


def onnx_facts_or_none(path: Path) -> str | None:
    return next((item.value for item in onnx.load(path).metadata_props if item.key == "names"), None)


@pytest.mark.parametrize(
    ("end2end", "layout"), [pytest.param("False", "raw", id="raw"), pytest.param("True", "end_to_end", id="end to end")]
)
def test_names_and_layout_are_read_from_the_file(model_file: Path, end2end: str, layout: str):
    model = onnx.load(model_file)
    del model.metadata_props[:]
    for key, value in {"names": "{1: 'pit', 0: 'scratch'}", "end2end": end2end}.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    onnx.save(model, model_file)
    assert onnx_facts(model_file) == OnnxFacts(("scratch", "pit"), layout)


def test_the_spec_is_filled_from_file_and_configuration(model_file: Path):
    spec = model_spec(model_file, OnnxFacts(("scratch", "pit"), "raw"), 64, CONFIG)
    model = onnx.load(model_file)
    assert spec.class_names == ("scratch", "pit")
    assert spec.input.wh == (64, 64)
    assert (spec.input.tensor, spec.output.tensor) == (model.graph.input[0].name, model.graph.output[0].name)
    assert (spec.runtime.onnx_opset, spec.runtime.onnx_ir) == (model.opset_import[0].version, model.ir_version)
    assert spec.letterbox == ULTRALYTICS_LETTERBOX
    assert (spec.nms.iou, spec.nms.max_candidates, spec.nms.max_detections) == (0.7, 3000, 300)


@pytest.mark.parametrize(
    ("opset", "ir", "expected"),
    [(17, 8, "1.12"), (15, 8, "1.10"), (17, 10, "1.18"), (21, 10, "1.18"), (20, 9, "1.17"), (16, 7, "1.11")],
)
def test_oldest_runtime(opset: int, ir: int, expected: str):
    assert oldest_runtime(opset, ir) == expected


@pytest.mark.parametrize("opset", [14, 22])
def test_an_opset_without_a_known_runtime_is_refused(opset: int):
    assert opset not in OLDEST_RUNTIME
    with pytest.raises(ValidationError):
        ExportConfig(**(CONFIG.model_dump() | {"opset": opset}))


def test_difference_is_relative_to_coordinates_for_boxes_and_absolute_for_scores():
    raw = np.zeros((1, 6, 2), np.float32)
    raw[0, :4] = 100.0
    boxes_off, scores_off = raw.copy(), raw.copy()
    boxes_off[0, 0, 0] += 1.0
    scores_off[0, 5, 1] += 0.01
    assert relative_difference(raw, raw, "raw") == 0.0
    assert relative_difference(raw, boxes_off, "raw") == pytest.approx(0.01)
    assert relative_difference(raw, scores_off, "raw") == pytest.approx(0.01)
    assert relative_difference(raw, raw[:, :5], "raw") == np.inf


FINAL = [[0, 0, 100, 100, 0.9, 1], [10, 10, 20, 20, 0.5, 0], [30, 30, 50, 50, 0.5, 0], [0, 0, 9, 9, 0.0001, 0]]


@pytest.mark.parametrize(
    ("row", "values", "expected"),
    [
        pytest.param(0, [0, 0, 100, 100, 0.9, 1], 0.0, id="equal"),
        pytest.param(0, [0, 0, 100, 100, 0.8, 1], 0.1, id="score"),
        pytest.param(0, [1, 0, 100, 100, 0.9, 1], 0.01, id="box, of a side of 100"),
        pytest.param(0, [0, 0, 100, 100, 0.9, 0], 1.0, id="class"),
        pytest.param(3, [50, 50, 99, 99, 0.0001, 2], 0.0, id="a box that scores next to nothing"),
    ],
)
def test_difference_of_final_boxes(row: int, values: list[float], expected: float):
    first = np.array([FINAL], np.float32)
    second = first.copy()
    second[0, row] = values
    assert relative_difference(first, second, "end_to_end") == pytest.approx(expected, abs=1e-6)
    swapped = second[:, [0, 2, 1, 3]]
    assert relative_difference(first, swapped, "end_to_end") == pytest.approx(expected, abs=1e-6)
