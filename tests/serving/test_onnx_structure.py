"""The hash of a model's structure: blind to weights and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import builders
from serving.onnx_structure import structure_digest
from serving.protobuf import fields, integers


def network() -> onnx.ModelProto:
    """Conv, bias, a scaling by a power of two, a quantised convolution's weights and a reshape."""
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray:
        return rng.random(shape, np.float32)

    initializers = {
        "w": numbers(16, 3, 3, 3),
        "b": numbers(16),
        "learned": numbers(16, 1, 1),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "shape": np.array([0, 16, -1], np.int64),
        "q": rng.integers(-5, 5, (16, 3), np.int8),
        "q_scale": np.array(0.1, np.float32),
        "q_zero": np.array(0, np.int8),
        "q_bias": rng.integers(-5, 5, (3,), np.int32),
        "q_bias_zero": np.array(0, np.int32),
        "factor": np.array(3, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("Add", ["c", "learned"], ["a"]),
        helper.make_node("Mul", ["a", "factor"], ["m"]),
        helper.make_node("Resize", ["m", "", "scales"], ["r"], mode="nearest"),
        helper.make_node("Reshape", ["r", "shape"], ["f"]),
        helper.make_node("DequantizeLinear", ["q", "q_scale", "q_zero"], ["dq"]),
        helper.make_node("DequantizeLinear", ["q_bias", "q_scale", "q_bias_zero"], ["db"]),
        helper.make_node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "dq"], ["p"]),
        helper.make_node("Add", ["p", "db"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 33, 33])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", None, 3])],
        [numpy_helper.from_array(value, name) for name, value in initializers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model, full_check=True)
    return model


def digest(folder: Path, model: onnx.ModelProto) -> str:
    file = folder / "model.onnx"
    file.write_bytes(model.SerializeToString())
    return structure_digest(file)


def tensor(model: onnx.ModelProto, name: str) -> TensorProto:
    return next(one for one in model.graph.initializer if one.name == name)


def put(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[onnx.ModelProto], None]:
    def edit(model: onnx.ModelProto) -> None:
        old = tensor(model, name)
        old.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(old)), name))

    return edit


def attribute(node: int, name: str, value: object) -> Callable[[onnx.ModelProto], None]:
    def edit(model: onnx.ModelProto) -> None:
        (old,) = (one for one in model.graph.node[node].attribute if one.name == name)
        old.CopyFrom(helper.make_attribute(name, value))

    return edit


def note(model: onnx.ModelProto) -> None:
    model.producer_version, model.doc_string, model.graph.doc_string, model.graph.name = "9", "words", "words", "other"
    helper.set_model_props(model, {"date": "tomorrow"})


def as_float_list(model: onnx.ModelProto) -> None:
    """The same tensor with its elements in another field of the message."""
    old = tensor(model, "w")
    old.CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, old.dims, numpy_helper.to_array(old).flatten() + 1))


def read_by_a_shape_too(model: onnx.ModelProto) -> None:
    model.graph.node.insert(0, helper.make_node("Range", ["factor", "factor", "factor"], ["unused"]))


def read_in_a_subgraph(model: onnx.ModelProto) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["b"], ["same"])],
        "body",
        [],
        [helper.make_tensor_value_info("same", TensorProto.FLOAT, None)],
    )
    model.graph.node.append(helper.make_node("If", ["condition"], ["i"], then_branch=body, else_branch=body))


def domain(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "somewhere.else"


WEIGHTS = {
    "convolution": put("w", lambda old: old + 1),
    "its bias": put("b", lambda old: old + 1),
    "learned bias": put("learned", lambda old: old + 1),
    "quantised weights": put("q", lambda old: old + 1),
    "quantised bias": put("q_bias", lambda old: old + 1),
    "quantisation scale": put("q_scale", lambda old: old * 2),
    "another field of elements": as_float_list,
    "words for people": note,
}
STRUCTURES = {
    "stride": attribute(0, "strides", [1, 1]),
    "operator": lambda model: setattr(model.graph.node[2], "op_type", "Div"),
    "edge": lambda model: model.graph.node[3].input.__setitem__(0, "c"),
    "width": put("w", lambda old: np.concatenate([old, old])),
    "kernel": put("w", lambda old: old[:, :, :1, :1]),
    "weight type": put("w", lambda old: old.astype(np.float16)),
    "scales of a resize": put("scales", lambda old: old * 2),
    "shape": put("shape", lambda old: np.array([0, -1, 16], np.int64)),
    "a number that may scale": put("factor", lambda old: old * 2),
    "input size": lambda model: setattr(model.graph.input[0].type.tensor_type.shape.dim[2], "dim_value", 65),
    "opset": lambda model: setattr(model.opset_import[0], "version", 18),
    "one node more": lambda model: model.graph.node.append(helper.make_node("Relu", ["y"], ["z"])),
    "node order of inputs": lambda model: model.graph.node[8].input.__setitem__(0, "f"),
}


@pytest.mark.parametrize("edit", WEIGHTS.values(), ids=WEIGHTS)
def test_weights_and_words_do_not_count(tmp_path: Path, edit: Callable[[onnx.ModelProto], None]) -> None:
    model = network()
    before, bytes_before = digest(tmp_path, model), model.SerializeToString()
    edit(model)
    assert model.SerializeToString() != bytes_before
    assert digest(tmp_path, model) == before


@pytest.mark.parametrize("edit", STRUCTURES.values(), ids=STRUCTURES)
def test_everything_else_counts(tmp_path: Path, edit: Callable[[onnx.ModelProto], None]) -> None:
    model = network()
    before = digest(tmp_path, model)
    edit(model)
    assert digest(tmp_path, model) != before


@pytest.mark.parametrize(
    ("edit", "name"),
    [(read_by_a_shape_too, "factor"), (read_in_a_subgraph, "b"), (domain, "w")],
    ids=["a shape", "a subgraph", "an operator of another domain"],
)
def test_values_count_where_something_else_may_read_them(
    tmp_path: Path, edit: Callable[[onnx.ModelProto], None], name: str
) -> None:
    model = network()
    edit(model)
    before = digest(tmp_path, model)
    put(name, lambda old: old + 1)(model)
    assert digest(tmp_path, model) != before


def test_models_of_one_architecture_agree_and_others_differ(tmp_path: Path) -> None:
    def of(**changes: object) -> str:
        (tmp_path / "model.onnx").write_bytes(builders.colour_stub(**changes))  # type: ignore[arg-type]
        return structure_digest(tmp_path / "model.onnx")

    assert of(first_colour=1) == of()
    assert len({of(), of(wh=(64, 32)), of(classes=3), of(layout="end_to_end")}) == 4


@pytest.mark.parametrize("data", [b"", b"\x08\x07", b"\xff" * 30, b"\x3a\x7f"])
def test_other_files_have_no_structure(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(data)
    with pytest.raises(ValueError, match=r"one graph|longer than|cut off"):
        structure_digest(tmp_path / "model.onnx")


def test_fields_of_a_message() -> None:
    message = memoryview(bytes.fromhex("08071201411d010000000803"))
    found = [(number, value if isinstance(value, int) else bytes(value)) for number, value, _ in fields(message)]
    assert found == [(1, 7), (2, b"A"), (3, b"\x01\x00\x00\x00"), (1, 3)]
    assert b"".join(whole for *_, whole in fields(message)) == message
    assert integers(memoryview(bytes.fromhex("03ac02"))) == (3, 300)
    assert integers(5) == (5,)
