"""What a picture file says about itself, read from its first bytes without decoding it.

The kind is sniffed from the content, never from a name. Width and height are those of the stored picture, before any
EXIF orientation. Nothing is allocated here, so a file that claims gigapixels costs nothing.
"""

from __future__ import annotations

import struct

from serving.image_kinds import SEVERAL, ImageHeader
from serving.jpeg_header import jpeg_header
from serving.png_header import PNG_SIGNATURE, png_header
from serving.tiff_header import TIFF_SIGNATURES, tiff_header

_OTHER_KINDS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"GIF8", "GIF"),
    (4, b"ftypavi", "AVIF"),
    (4, b"ftyphei", "HEIF"),
    (4, b"ftypmif1", "HEIF"),
    (4, b"ftypmsf1", "HEIF"),
    (4, b"ftyp", "a video"),
    (0, b"\x00\x00\x00\x0cjP  ", "JPEG 2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000"),
    (0, b"\x00\x00\x00\x0cJXL ", "JPEG XL"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"%PDF", "PDF"),
    (0, b"%!PS", "PostScript"),
    (0, b"8BPS", "PSD"),
    (0, b"\x00\x00\x01\x00", "ICO"),
    (0, b"v/1\x01", "OpenEXR"),
    (0, b"#?RADIANCE", "Radiance HDR"),
    (0, b"DDS ", "DDS"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"PK\x03\x04", "ZIP"),
    (0, b"\x00\x05\x16\x07", "an AppleDouble side file of macOS, not a picture"),
    *((0, b"P%d" % digit, "PNM (PBM, PGM, PPM)") for digit in range(1, 8)),
)


def is_picture(data: bytes) -> bool:
    """Whether `data` begins like a picture file of any kind, also one that we do not read."""
    ours = data.startswith((b"\xff\xd8", PNG_SIGNATURE, b"BM", *TIFF_SIGNATURES)) or _is_webp(data)
    return ours or any(data.startswith(magic, offset) for offset, magic, _ in _OTHER_KINDS)


def read_header(data: bytes) -> ImageHeader | None:
    """Header of a kind that we read, or None for everything else."""
    if data.startswith(b"\xff\xd8"):
        return jpeg_header(data)
    if data.startswith(PNG_SIGNATURE):
        return png_header(data)
    if data.startswith(b"BM"):
        return ImageHeader("bmp", _bmp_wh(data), unreadable=_bmp_oddity(data))
    if _is_webp(data):
        return ImageHeader("webp", _webp_wh(data), unreadable=SEVERAL if _webp_is_animated(data) else "")
    if data.startswith(TIFF_SIGNATURES):
        return tiff_header(data)
    return None


def name_other_kind(data: bytes) -> str:
    """Words for content that we do not read, for the message to whoever sent it."""
    for offset, magic, name in _OTHER_KINDS:
        if data.startswith(magic, offset):
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


def _bmp_oddity(data: bytes) -> str:
    """Colour masks that the decoder does not look at: it would give other colours and no error."""
    if len(data) < 66 or data[30:34] != b"\x03\x00\x00\x00":
        return ""
    usual = {
        16: ((0xF800, 0x7E0, 0x1F), (0x7C00, 0x3E0, 0x1F)),
        32: ((0xFF0000, 0xFF00, 0xFF),),
    }  # fmt: skip
    (bits,) = struct.unpack_from("<H", data, 28)
    return "" if struct.unpack_from("<III", data, 54) in usual.get(bits, ()) else "unusual colour masks"


def _is_webp(data: bytes) -> bool:
    return data.startswith(b"RIFF") and data.startswith(b"WEBP", 8)


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
