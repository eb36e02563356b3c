"""Which operators are the head: by the wiring of the graph, whatever they are called (A13)."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from builders import colour_stub, tiny_onnx
from quantise_fakes import branched_colours
from tasks.quantising.onnx_head import head_nodes, name_nodes

BRANCHED = ["Conv", "Clip", "Reshape", "Conv", "Reshape", "Add", "Concat"]


def chain(*nodes: tuple[str, str, str]) -> onnx.ModelProto:
    """A graph of (name, inputs, outputs) with one-letter tensors; names starting with c are convolutions."""
    made = [
        helper.make_node("Conv" if name.startswith("c") else "Concat", list(ins), list(outs), name=name)
        for name, ins, outs in nodes
    ]
    tensor = helper.make_tensor_value_info
    ends = [tensor("x", TensorProto.FLOAT, [1])], [tensor("y", TensorProto.FLOAT, [1])]
    return helper.make_model(helper.make_graph(made, "a graph", *ends))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param(
            tiny_onnx(), ["Conv", "Sigmoid", "Mul", "Conv", "Sigmoid", "Concat", "Reshape"], id="two branches"
        ),
        pytest.param(branched_colours(), BRANCHED, id="trunk of three operators"),
        pytest.param(branched_colours(names=["same"] * 10), BRANCHED, id="one name for all"),
        pytest.param(
            branched_colours(names=["head", "model.22", "", "/model.0/Conv"]), BRANCHED, id="misleading names"
        ),
    ],
)
def test_the_branches_and_what_joins_them_are_the_head(model: bytes, expected: list[str]):
    loaded = onnx.load_from_string(model)
    name_nodes(loaded)
    kinds = {node.name: node.op_type for node in loaded.graph.node}
    assert len(kinds) == len(loaded.graph.node)
    assert [kinds[name] for name in head_nodes(loaded)] == expected


def test_a_graph_without_branches_keeps_its_last_convolution_in_float():
    loaded = onnx.load_from_string(colour_stub())
    name_nodes(loaded)
    names = [node.name for node in loaded.graph.node]
    assert names[0].startswith("AveragePool")
    assert head_nodes(loaded) == tuple(names[1:])


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # Boxes of two scales meet in one more convolution (as where distances are decoded), scores do not.
        pytest.param(
            chain(
                ("c_trunk", "x", "a"), ("c_down", "a", "b"),
                ("c_box1", "a", "c"), ("c_box2", "b", "d"), ("join", "cd", "e"), ("c_decode", "e", "f"),
                ("c_score1", "a", "g"), ("c_score2", "b", "h"), ("end", "fgh", "y"),
            ),
            ("c_box1", "c_box2", "join", "c_decode", "c_score1", "c_score2", "end"), id="boxes through a convolution",
        ),
        pytest.param(
            chain(("c1", "x", "a"), ("c2", "a", "b"), ("end", "b", "y")), ("c2", "end"), id="no branches",
        ),
        pytest.param(chain(("end", "x", "y")), ("end",), id="no convolution"),
        # The shape of a feature map goes straight to the end: it is no way through a convolution.
        pytest.param(
            chain(("c1", "x", "a"), ("shape", "a", "s"), ("c2", "a", "b"), ("c3", "a", "c"), ("end", "sbc", "y")),
            ("shape", "c2", "c3", "end"), id="anchors made from a shape",
        ),
    ],
)  # fmt: skip
def test_heads_of_other_shapes(model: onnx.ModelProto, expected: tuple[str, ...]):
    assert head_nodes(model) == expected
