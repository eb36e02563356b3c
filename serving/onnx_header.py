"""IR version and opset of an ONNX file, read without the onnx package, which does not ship to inference hosts.

An ONNX file is one protobuf message. Two of its fields are wanted: 1, the IR version, and 8, the operator sets, each
with a domain (1) and a version (2). The graph between them is skipped, not read.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

IR_VERSION, OPERATOR_SET = 1, 8
DOMAIN, VERSION = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SKIP = {_FIXED64: 8, _FIXED32: 4}


@dataclass(frozen=True)
class OnnxHeader:
    """`opset` is that of the standard operators."""

    ir: int
    opset: int


def read_onnx_header(model_file: Path) -> OnnxHeader:
    """Versions named in the file. Raises ValueError when it is not an ONNX file."""
    ir, opset = 0, 0
    with model_file.open("rb") as file:
        for number, value in _fields(file, wanted=OPERATOR_SET):
            if number == IR_VERSION and isinstance(value, int):
                ir = value
            elif number == OPERATOR_SET and isinstance(value, bytes):
                opset = _standard_opset(value) or opset
    if not ir or not opset:
        raise ValueError("no IR version or no operator set in it")
    return OnnxHeader(ir, opset)


def _standard_opset(message: bytes) -> int | None:
    fields = dict(_fields(io.BytesIO(message), wanted=DOMAIN))
    version = fields.get(VERSION)
    return version if isinstance(version, int) and fields.get(DOMAIN, b"") in (b"", b"ai.onnx") else None


def _fields(file: BinaryIO, wanted: int) -> list[tuple[int, int | bytes]]:
    """Field numbers and values of one message; of the byte fields only those numbered `wanted` are read."""
    found: list[tuple[int, int | bytes]] = []
    while (key := _varint(file)) is not None:
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            found.append((number, _need(_varint(file))))
        elif kind == _BYTES:
            length = _need(_varint(file))
            if number == wanted:
                found.append((number, file.read(length)))
            else:
                file.seek(length, io.SEEK_CUR)
        elif kind in _SKIP:
            file.seek(_SKIP[kind], io.SEEK_CUR)
        else:
            raise ValueError(f"wire type {kind} of field {number} does not exist")
    return found


def _varint(file: BinaryIO) -> int | None:
    """Next whole number, 7 bits a byte, lowest first; None at the end of the file."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise ValueError("a number is longer than 10 bytes")


def _need(value: int | None) -> int:
    if value is None:
        raise ValueError("it is cut off")
    return value
