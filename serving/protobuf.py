"""The few lines of protobuf's wire format that reading an ONNX file takes; its library does not ship to hosts."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview, memoryview]]:
    """Number, value and encoded whole of each field of a message; nothing is copied.

    Whole numbers come as int, all else as the bytes of the value. Raises ValueError for what is no message.
    Worked example: 08 07 is field 1 with the number 7; 12 01 41 is field 2 with the one byte 41.
    """
    at = 0
    while at < len(message):
        start = at
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value, message[start:at]
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise ValueError(f"wire type {kind} of field {number} does not exist")
        if at + length > len(message):
            raise ValueError("it is cut off")
        yield number, message[at : at + length], message[start : at + length]
        at += length


def integers(value: int | memoryview) -> tuple[int, ...]:
    """The numbers of a repeated field, which stand alone or packed into one value."""
    if isinstance(value, int):
        return (value,)
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(number)
    return tuple(found)


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """The whole number at `at`, 7 bits a byte, lowest first, and where the next byte is."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("it is cut off")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number is longer than 10 bytes")
