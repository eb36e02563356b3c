"""What an ONNX model computes apart from its learned weights, as one hash: models that share it are equally fast.

All of the graph counts but the values of tensors that can only be weights. A tensor is one when it is an initializer of
a weight's type and every operator that reads it works through all its elements whatever they are, as Conv does.
Values that may decide about shapes (Reshape, Resize, Slice) count, and so does whatever is not known here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

from serving.protobuf import fields, integers

FUNCTION_BODIES = 25
GRAPH, OPERATOR_SET = 7, 8
NODE, INITIALIZER = 1, 5
NODE_INPUT, NODE_OPERATOR, NODE_ATTRIBUTE, NODE_DOMAIN = 1, 4, 5, 7
SUBGRAPHS = (6, 11)
"""Fields of an attribute that hold graphs."""
DIMS, DATA_TYPE, NAME = 1, 2, 8
VALUES = (4, 5, 6, 7, 9, 10, 11)
"""Fields of a tensor that hold its elements."""
NOTES = (2, 10)
"""Fields of a graph that are words for people: its name and its description."""

FLOATS = (1, 10, 11, 16)
QUANTISED = (2, 3, 6)
"""uint8, int8 and int32, as the weights and biases of a quantised model are."""
WEIGHED = frozenset(
    (
        *("BatchNormalization", "Conv", "ConvTranspose", "DequantizeLinear", "Gemm", "GroupNormalization"),
        *("InstanceNormalization", "LayerNormalization", "MatMul", "PRelu", "QuantizeLinear"),
    )
)
QUANTISED_BY = frozenset(
    ("ConvInteger", "DequantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul", "QuantizeLinear")
)
SHIFTED = frozenset(("Add", "Mul"))
"""They apply learned biases and scales, but scale factors of a picture too, one for each of at most 8 axes."""
MOST_AXES = 8


def structure_digest(model_file: Path) -> str:
    """SHA-256 over all of the model but its weights. Raises ValueError when it is not an ONNX file."""
    digest, graphs = hashlib.sha256(), 0
    for number, value, whole in fields(memoryview(model_file.read_bytes())):
        if number == GRAPH and isinstance(value, memoryview):
            graphs += 1
            for part in _graph_parts(value):
                digest.update(len(part).to_bytes(8, "little"))
                digest.update(part)
        elif number in (OPERATOR_SET, FUNCTION_BODIES):
            digest.update(whole)
    if graphs != 1:
        raise ValueError(f"expected one graph, got {graphs}")
    return digest.hexdigest()


def _graph_parts(graph: memoryview) -> Iterator[memoryview]:
    """What counts of a graph. Names of nodes and tensors are part of it: exports of one architecture agree in them."""
    readers = _readers(graph)
    for number, value, whole in fields(graph):
        if number in NOTES:
            continue
        if number != INITIALIZER or not isinstance(value, memoryview):
            yield whole
            continue
        weight = readers is not None and _is_weight(value, readers)
        for field, _, part in fields(value):
            if not (weight and field in VALUES):
                yield part


def _readers(graph: memoryview) -> dict[bytes, set[str]] | None:
    """Operators that read each tensor; None where a graph within the graph may read it too."""
    found: dict[bytes, set[str]] = {}
    for number, value, _ in fields(graph):
        if number != NODE or not isinstance(value, memoryview):
            continue
        node = _Node.of(value)
        if node.has_subgraph:
            return None
        for name in node.inputs:
            found.setdefault(name, set()).add(node.operator)
    return found


def _is_weight(tensor: memoryview, readers: dict[bytes, set[str]]) -> bool:
    shape: tuple[int, ...] = ()
    data_type, name = 0, b""
    for number, value, _ in fields(tensor):
        if number == DIMS:
            shape += integers(value)
        elif number == DATA_TYPE and isinstance(value, int):
            data_type = value
        elif number == NAME and isinstance(value, memoryview):
            name = bytes(value)
    by = readers.get(name, set())
    if data_type in FLOATS:
        return bool(by) and by <= (WEIGHED | SHIFTED if prod(shape) > MOST_AXES else WEIGHED)
    return data_type in QUANTISED and bool(by) and by <= QUANTISED_BY


@dataclass(frozen=True)
class _Node:
    """`operator` is empty for one that is not a standard operator."""

    operator: str
    inputs: tuple[bytes, ...]
    has_subgraph: bool

    @classmethod
    def of(cls, node: memoryview) -> _Node:
        operator, domain, inputs, subgraph = "", b"", [], False
        for number, value, _ in fields(node):
            if isinstance(value, int):
                continue
            if number == NODE_OPERATOR:
                operator = str(value, "utf-8")
            elif number == NODE_DOMAIN:
                domain = bytes(value)
            elif number == NODE_INPUT:
                inputs.append(bytes(value))
            elif number == NODE_ATTRIBUTE:
                subgraph = subgraph or any(field in SUBGRAPHS for field, _, _ in fields(value))
        return cls(operator if domain in (b"", b"ai.onnx") else "", tuple(inputs), subgraph)
