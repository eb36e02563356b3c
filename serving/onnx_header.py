"""IR version and opset of an ONNX file, read without the onnx package, which does not ship to inference hosts.

An ONNX file is one protobuf message. Two of its fields are wanted: 1, the IR version, and 8, the operator sets, each
with a domain (1) and a version (2). The graph between them is skipped, not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from serving.protobuf import fields

IR_VERSION, OPERATOR_SET = 1, 8
DOMAIN, VERSION = 1, 2


@dataclass(frozen=True)
class OnnxHeader:
    """`opset` is that of the standard operators."""

    ir: int
    opset: int


def read_onnx_header(model_file: Path) -> OnnxHeader:
    """Versions named in the file. Raises ValueError when it is not an ONNX file."""
    ir, opset = 0, 0
    for number, value, _ in fields(memoryview(model_file.read_bytes())):
        if number == IR_VERSION and isinstance(value, int):
            ir = value
        elif number == OPERATOR_SET and isinstance(value, memoryview):
            opset = _standard_opset(value) or opset
    if not ir or not opset:
        raise ValueError("no IR version or no operator set in it")
    return OnnxHeader(ir, opset)


def _standard_opset(message: memoryview) -> int | None:
    found = {number: value for number, value, _ in fields(message)}
    version, domain = found.get(VERSION), found.get(DOMAIN, b"")
    return version if isinstance(version, int) and domain in (b"", b"ai.onnx") else None
