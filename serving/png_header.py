"""The chunks of a PNG file: size, number of frames, and whether every chunk lies within the file."""

from __future__ import annotations

import struct

from serving.image_kinds import SEVERAL, ImageHeader

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST_CHUNKS = 2**16
_FRAME_BYTES = 12
"""Length, kind and checksum around a chunk's body."""


def png_header(data: bytes) -> ImageHeader:
    """Header of a file that begins as a PNG does.

    All chunks are walked over: the decoder takes memory for a chunk by the length that it claims, so a file of 500
    bytes could take 4 GB.
    """
    if len(data) < 33:
        return ImageHeader("png", None)
    width, height = struct.unpack_from(">II", data, 16)
    wh = (width, height) if width and height else None
    at, frames = len(PNG_SIGNATURE), 1
    for _ in range(MOST_CHUNKS):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        if at + _FRAME_BYTES + size > len(data):
            return ImageHeader("png", wh, damaged="it is cut off: a chunk ends behind the end of the file")
        if kind == b"acTL":
            frames = int.from_bytes(data[at + 8 : at + 12], "big")
        if kind == b"IEND":
            return ImageHeader("png", wh, SEVERAL if frames > 1 else "")
        at += _FRAME_BYTES + size
    return ImageHeader("png", wh, damaged=f"more than {MOST_CHUNKS} chunks")
