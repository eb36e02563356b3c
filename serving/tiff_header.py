"""The first directory of a TIFF file, plain or BigTIFF: size, samples, tiles, and whether a second page follows."""

from __future__ import annotations

import struct

from serving.image_kinds import SEVERAL, ImageHeader

TIFF_SIGNATURES = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")

WIDTH, HEIGHT, BITS, PHOTOMETRIC, SAMPLES, TILE_WIDTH, TILE_HEIGHT, FORMAT = 256, 257, 258, 262, 277, 322, 323, 339
_TAGS = frozenset((WIDTH, HEIGHT, BITS, PHOTOMETRIC, SAMPLES, TILE_WIDTH, TILE_HEIGHT, FORMAT))
_TYPES = {3: "H", 4: "I", 16: "Q"}
_WHITE_IS_ZERO, _PALETTE = 0, 3
_LAB = frozenset((8, 9, 10))
_UNSIGNED, _SIGNED, _FLOATING, _UNDEFINED = 1, 2, 3, 4
MOST_TILE_PIXELS = 2**22
"""A tile may be larger than a small picture, but its memory is taken whatever the picture's size is."""


def tiff_header(data: bytes) -> ImageHeader:
    """Header of a file that begins as a TIFF does."""
    try:
        tags, following = _directory(data)
    except struct.error:
        return ImageHeader("tiff", None)
    width, height = tags.get(WIDTH, 0), tags.get(HEIGHT, 0)
    wh = (width, height) if width > 0 and height > 0 else None
    return ImageHeader("tiff", wh, SEVERAL if following else _oddity(tags), _damage(tags))


def _oddity(tags: dict[int, int]) -> str:
    """Samples that the decoder does not read, or reads as something else without an error."""
    kind, bits, colours = tags.get(FORMAT, _UNSIGNED), tags.get(BITS, 1), tags.get(PHOTOMETRIC)
    if kind == _FLOATING:
        return "floating-point samples"
    if kind not in (_UNSIGNED, _UNDEFINED):
        return "signed samples" if kind == _SIGNED else "complex samples"
    if bits not in (1, 8, 16) and colours != _PALETTE:
        return f"{bits} bits per sample"
    if tags.get(SAMPLES, 1) not in (1, 3, 4):
        return f"{tags[SAMPLES]} samples per pixel"
    if colours in _LAB:
        return "Lab colours"
    return "16-bit samples where white is zero" if (colours, bits) == (_WHITE_IS_ZERO, 16) else ""


def _damage(tags: dict[int, int]) -> str:
    tile = tags.get(TILE_WIDTH, 0) * tags.get(TILE_HEIGHT, 0)
    most = max(MOST_TILE_PIXELS, 4 * tags.get(WIDTH, 0) * tags.get(HEIGHT, 0))
    return f"tiles of {tile} pixels" if tile > most else ""


def _directory(data: bytes) -> tuple[dict[int, int], int]:
    """First value of each tag that matters here, and the offset of the next directory."""
    order = "<" if data[:2] == b"II" else ">"
    big = b"+" in data[2:4]
    word, count_word, entry_size = ("Q", "Q", 20) if big else ("I", "H", 12)
    (start,) = struct.unpack_from(order + word, data, 8 if big else 4)
    if start > len(data):
        raise struct.error
    (count,) = struct.unpack_from(order + count_word, data, start)
    first = start + struct.calcsize(order + count_word)
    if first + count * entry_size > len(data):
        raise struct.error
    tags: dict[int, int] = {}
    for entry in range(first, first + count * entry_size, entry_size):
        tag, value_type = struct.unpack_from(order + "HH", data, entry)
        if tag in _TAGS and value_type in _TYPES and tag not in tags:
            tags[tag] = _value(data, entry, order, value_type, big=big)
    (following,) = struct.unpack_from(order + word, data, first + count * entry_size)
    return tags, following


def _value(data: bytes, entry: int, order: str, value_type: int, *, big: bool) -> int:
    """First value of an entry: beside the tag, or where the entry points when several do not fit there."""
    word = "Q" if big else "I"
    (count,) = struct.unpack_from(order + word, data, entry + 4)
    field = entry + 4 + struct.calcsize(order + word)
    layout = order + _TYPES[value_type]
    if count * struct.calcsize(layout) > struct.calcsize(order + word):
        (field,) = struct.unpack_from(order + word, data, field)
        if field > len(data):
            raise struct.error
    return int(struct.unpack_from(layout, data, field)[0])
