"""What a picture file says about itself, read from its first bytes without decoding it.

The kind is sniffed from the content, never from a name. Width and height are those of the stored picture, before any
EXIF orientation. Nothing is allocated here, so a file that claims gigapixels costs nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

Kind = Literal["jpeg", "png", "bmp", "webp", "tiff"]

_JPEG_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_LONE_MARKERS = frozenset((0x01, *range(0xD0, 0xD9)))

_OTHER_KINDS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"GIF8", "GIF"),
    (4, b"ftypavi", "AVIF"),
    (4, b"ftyphei", "HEIF"),
    (4, b"ftypmif1", "HEIF"),
    (4, b"ftypmsf1", "HEIF"),
    (0, b"\x00\x00\x00\x0cjP  ", "JPEG 2000"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"%PDF", "PDF"),
    (0, b"8BPS", "PSD"),
    (0, b"\x00\x05\x16\x07", "an AppleDouble side file of macOS, not a picture"),
    *((0, b"P%d" % digit, "PNM (PBM, PGM, PPM)") for digit in range(1, 8)),
)


@dataclass(frozen=True)
class ImageHeader:
    """`wh` is None where the header is damaged; `pictures` counts up to 2; `floating`: samples are floating-point."""

    kind: Kind
    wh: tuple[int, int] | None
    pictures: int = 1
    floating: bool = False


def read_header(data: bytes) -> ImageHeader | None:
    """Header of a kind that we read, or None for everything else."""
    if data.startswith(b"\xff\xd8"):
        return ImageHeader("jpeg", _jpeg_wh(data))
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return ImageHeader("png", _fixed(">II", data, 16))
    if data.startswith(b"BM"):
        return ImageHeader("bmp", _bmp_wh(data))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return ImageHeader("webp", _webp_wh(data), pictures=2 if _webp_is_animated(data) else 1)
    if data[:4] in (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"):
        return _tiff_header(data)
    return None


def name_other_kind(data: bytes) -> str:
    """Words for content that we do not read, for the message to whoever sent it."""
    for offset, magic, name in _OTHER_KINDS:
        if data[offset : offset + len(magic)] == magic:
            return name
    start = data[:512].lstrip()[:64]
    if start and all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in start):
        return f"text starting with {start[:24].decode('ascii')!r}"
    return f"bytes starting with {data[:8].hex(' ')}"


def _fixed(layout: str, data: bytes, offset: int) -> tuple[int, int] | None:
    if len(data) < offset + struct.calcsize(layout):
        return None
    width, height = struct.unpack_from(layout, data, offset)
    return (width, height) if width > 0 and height > 0 else None


def _bmp_wh(data: bytes) -> tuple[int, int] | None:
    if len(data) < 26:
        return None
    (header_size,) = struct.unpack_from("<I", data, 14)
    if header_size == 12:
        return _fixed("<HH", data, 18)
    width, height = struct.unpack_from("<ii", data, 18)
    # A negative height means rows from top to bottom. A negative width means nothing: taken as unsigned it is far over
    # any limit, and that is how it is refused.
    return (width % 2**32, abs(height)) if width and height else None


def _webp_wh(data: bytes) -> tuple[int, int] | None:
    chunk = data[12:16]
    if chunk == b"VP8X" and len(data) >= 30:
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if chunk == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    size = _fixed("<HH", data, 26) if chunk == b"VP8 " else None
    return (size[0] & 0x3FFF, size[1] & 0x3FFF) if size else None


def _webp_is_animated(data: bytes) -> bool:
    return data[12:16] == b"VP8X" and len(data) > 20 and bool(data[20] & 0x02)


def _jpeg_wh(data: bytes) -> tuple[int, int] | None:
    """Size from the first frame header. Bytes between segments are skipped: decoders do so too."""
    at = 2
    while True:
        at = data.find(b"\xff", at)
        if at < 0 or at + 9 > len(data):
            return None
        marker = data[at + 1]
        if marker in _JPEG_SIZE_MARKERS:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return (width, height) if width and height else None
        if marker in (0xD9, 0xDA):  # end of picture, or pixels before any frame header
            return None
        if marker in (0x00, 0xFF):
            at += 1
        elif marker in _JPEG_LONE_MARKERS:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def _tiff_header(data: bytes) -> ImageHeader:
    """Size, sample format and whether a second page follows, from the first directory; plain TIFF and BigTIFF."""
    try:
        tags, following = _tiff_directory(data)
    except struct.error:
        return ImageHeader("tiff", None)
    width, height = tags.get(256, 0), tags.get(257, 0)
    wh = (width, height) if width > 0 and height > 0 else None
    return ImageHeader("tiff", wh, pictures=2 if following else 1, floating=tags.get(339) == 3)


def _tiff_directory(data: bytes) -> tuple[dict[int, int], int]:
    """First value of each whole-number tag of the first directory, and the offset of the next directory."""
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
    tags = {}
    for entry in range(first, first + count * entry_size, entry_size):
        tag, value_type = struct.unpack_from(order + "HH", data, entry)
        if tag in (256, 257, 339) and value_type in (3, 4, 16):
            tags[tag] = _tiff_value(data, entry, order, value_type, big=big)
    (following,) = struct.unpack_from(order + word, data, first + count * entry_size)
    return tags, following


def _tiff_value(data: bytes, entry: int, order: str, value_type: int, *, big: bool) -> int:
    """First value of an entry: beside the tag, or where the entry points when several do not fit there."""
    word = "Q" if big else "I"
    (count,) = struct.unpack_from(order + word, data, entry + 4)
    field = entry + 4 + struct.calcsize(order + word)
    layout = order + {3: "H", 4: "I", 16: "Q"}[value_type]
    if count * struct.calcsize(layout) > struct.calcsize(order + word):
        (field,) = struct.unpack_from(order + word, data, field)
        if field > len(data):
            raise struct.error
    return int(struct.unpack_from(layout, data, field)[0])
