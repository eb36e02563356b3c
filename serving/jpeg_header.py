"""The header of a JPEG file: size, bits per sample, number of scans."""

from __future__ import annotations

import struct

from serving.image_kinds import ImageHeader

MOST_SCANS = 200
"""A real file has about ten. Each one walks over the whole picture, so thousands would hold the decoder for minutes."""

_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_LONE_MARKERS = frozenset((0x01, *range(0xD0, 0xD9)))
_ONE_SCAN = frozenset((0xC0, 0xC1, 0xC9))
"""Frames that are one scan when that holds all components: sequential ones."""
_END, _PIXELS = 0xD9, 0xDA


def jpeg_header(data: bytes) -> ImageHeader:
    """Header of a file that begins as a JPEG does."""
    at = _find(data, 2, _SIZE_MARKERS)
    if at is None:
        return ImageHeader("jpeg", None)
    bits, height, width, components = struct.unpack_from(">BHHB", data, at + 4)
    wh = (width, height) if width and height else None
    unreadable = "" if bits == 8 else f"{bits} bits per sample"
    many = _scans(data, at, components) > MOST_SCANS
    return ImageHeader("jpeg", wh, unreadable, f"more than {MOST_SCANS} scans" if many else "")


def _scans(data: bytes, frame_at: int, components: int) -> int:
    """Number of scans; counted only where there can be several, for counting reads the whole file."""
    first = _find(data, frame_at, frozenset((_PIXELS,)))
    if first is None or (data[frame_at + 1] in _ONE_SCAN and data[first + 4] == components):
        return 1
    return data.count(b"\xff\xda", first)


def _find(data: bytes, at: int, wanted: frozenset[int]) -> int | None:
    """Where the first segment with one of the `wanted` markers begins, or None.

    Bytes between segments are skipped: decoders do so too.
    """
    while True:
        at = data.find(b"\xff", at)
        if at < 0 or at + 10 > len(data):
            return None
        marker = data[at + 1]
        if marker in wanted:
            return at
        if marker in (_END, _PIXELS):  # end of picture, or pixels before any frame header
            return None
        if marker in (0x00, 0xFF):
            at += 1
        elif marker in _LONE_MARKERS:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
