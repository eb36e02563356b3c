"""Picture files of every kind, made byte by byte, each with the pixels that it must give or with why it is refused.

`KINDS` is what a service must get right: name to (bytes, RGB pixels or None for refused, tolerance in grey levels).
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any, Literal

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image as PillowImage
from PIL import ImageCms

from builders import encode, encode_16bit, encode_mode

Image = npt.NDArray[np.uint8]
Order = Literal["<", ">"]

WIDTH, HEIGHT = 64, 48
_Y, _X = np.mgrid[0:HEIGHT, 0:WIDTH]
SMOOTH: Image = np.stack([_X * 4, _Y * 5, _X + _Y], axis=-1).astype(np.uint8)
"""Every row and column differs, also mirrored; smooth, so that JPEG keeps it to a few grey levels."""

# --- PNG and APNG --------------------------------------------------------------------------------------------------


def png_chunk(kind: bytes, body: bytes) -> bytes:
    """One chunk with its checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_with(*chunks: bytes, png: bytes | None = None) -> bytes:
    """A PNG with more chunks right behind its header."""
    png = encode(SMOOTH) if png is None else png
    return png[:33] + b"".join(chunks) + png[33:]


def png_that_claims(wh: tuple[int, int]) -> bytes:
    """A small PNG whose header says that it has `wh` pixels."""
    png = encode(SMOOTH)
    return png[:8] + png_chunk(b"IHDR", struct.pack(">II", *wh) + png[24:29]) + png[33:]


def deflated_zeros(size: int) -> bytes:
    """`size` zero bytes, a thousandth of that when compressed."""
    return zlib.compress(bytes(size), 9)


# --- JPEG and EXIF -------------------------------------------------------------------------------------------------


def exif(orientation: int, order: Order = "<", kind: int = 3, count: int = 1) -> bytes:
    """An EXIF block that says nothing but the orientation."""
    value = struct.pack(order + ("H2x" if kind == 3 else "I"), orientation)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, 1)
    return b"Exif\0\0" + head + struct.pack(order + "HHI", 0x112, kind, count) + value + bytes(4)


def segment(marker: int, body: bytes) -> bytes:
    """One JPEG segment."""
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


def jpeg_with(*segments: bytes) -> bytes:
    """A JPEG with more segments right behind its start."""
    data = encode(SMOOTH, "jpeg")
    return data[:2] + b"".join(segments) + data[2:]


def jpeg_frame(offset: int, value: bytes, marker: int | None = None, data: bytes | None = None) -> bytes:
    """A JPEG whose frame header is changed: at 4 are the bits, at 5 the height, at 7 the width."""
    changed = bytearray(encode(SMOOTH, "jpeg") if data is None else data)
    at = max(changed.find(b"\xff\xc0"), changed.find(b"\xff\xc2"))
    changed[at + offset : at + offset + len(value)] = value
    changed[at + 1] = changed[at + 1] if marker is None else marker
    return bytes(changed)


def jpeg_of_many_scans(scans: int, wh: tuple[int, int] = (WIDTH, HEIGHT)) -> bytes:
    """A progressive JPEG of `wh` pixels whose last scan comes again and again."""
    data = encode(np.zeros((16, 16, 3), np.uint8), "jpeg", progressive=True, quality=50)
    data = jpeg_frame(5, struct.pack(">HH", wh[1], wh[0]), data=data)
    return data[:-2] + data[data.rindex(b"\xff\xda") : -2] * scans + b"\xff\xd9"


# --- BMP -----------------------------------------------------------------------------------------------------------


def bmp(bits: int, compression: int, pixels: bytes, masks: tuple[int, ...] = (), height: int = HEIGHT) -> bytes:
    """A BMP with colour masks or none; rows from the bottom unless `height` is negative."""
    start = 54 + 4 * len(masks)
    head = b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start)
    info = struct.pack("<IiiHHIIiiII", 40, WIDTH, height, 1, bits, compression, len(pixels), 0, 0, 0, 0)
    return head + info + struct.pack(f"<{len(masks)}I", *masks) + pixels


def packed(shifts: tuple[int, int, int], keep: tuple[int, int, int], dtype: str) -> bytes:
    """Rows from the bottom, each pixel its three colours, `keep` bits of each, at `shifts`."""
    value = sum(
        (SMOOTH[::-1, :, channel].astype(np.uint32) >> max(0, 8 - keep[channel])) << max(0, keep[channel] - 8) << shift
        for channel, shift in enumerate(shifts)
    )
    return np.asarray(value).astype(dtype).tobytes()


# --- TIFF ----------------------------------------------------------------------------------------------------------

Tags = dict[int, tuple[int, list[int]]]


def tiff(tags: Tags, pixels: bytes, order: Order = "<", *, big: bool = False) -> bytes:
    """A TIFF, or BigTIFF, of one directory. Values of tags 273 and 324, strips and tiles, count from the pixels."""
    word, inline, entry = ("Q", 8, 20) if big else ("I", 4, 12)
    mark = b"II" if order == "<" else b"MM"
    head = mark + struct.pack(order + "H", 43 if big else 42)
    head += struct.pack(order + "HHQ", 8, 0, 16) if big else struct.pack(order + "I", 8)
    count = struct.pack(order + ("Q" if big else "H"), len(tags))
    pixels_at = len(head) + len(count) + len(tags) * entry + struct.calcsize(word)
    entries, elsewhere = b"", b""
    for tag, (kind, values) in sorted(tags.items()):
        moved = [value + pixels_at for value in values] if tag in (273, 324) else values
        raw = struct.pack(f"{order}{len(moved)}{ {3: 'H', 4: 'I'}[kind] }", *moved)
        entries += struct.pack(order + "HH" + word, tag, kind, len(moved))
        if len(raw) <= inline:
            entries += raw.ljust(inline, b"\0")
        else:
            entries += struct.pack(order + word, pixels_at + len(pixels) + len(elsewhere))
            elsewhere += raw
    return head + count + entries + bytes(struct.calcsize(word)) + pixels + elsewhere


def tiff_tags(channels: int = 3, bits: int = 8, photometric: int = 2, **more: list[int]) -> Tags:
    """Tags of an uncompressed picture in one strip; `more` are t<number>=[values]."""
    size = WIDTH * HEIGHT * channels * bits // 8
    tags: Tags = {
        256: (3, [WIDTH]), 257: (3, [HEIGHT]), 258: (3, [bits] * channels), 259: (3, [1]), 262: (3, [photometric]),
        273: (4, [0]), 277: (3, [channels]), 278: (4, [HEIGHT]), 279: (4, [size]),
    }  # fmt: skip
    tags |= {int(name[1:]): (4 if max(values) > 65535 else 3, values) for name, values in more.items()}
    return tags


def tiled_tiff(side: int, **more: list[int]) -> bytes:
    """The picture in deflated square tiles."""
    padded = np.zeros((-(-HEIGHT // side) * side, -(-WIDTH // side) * side, 3), np.uint8)
    padded[:HEIGHT, :WIDTH] = SMOOTH
    tops, lefts = range(0, padded.shape[0], side), range(0, padded.shape[1], side)
    tiles = [zlib.compress(padded[y : y + side, x : x + side].tobytes()) for y in tops for x in lefts]
    starts = [sum(map(len, tiles[:index])) for index in range(len(tiles))]
    kept = {tag: value for tag, value in tiff_tags().items() if tag not in (273, 278, 279)}
    kept |= {259: (3, [8]), 322: (4, [side]), 323: (4, [side]), 324: (4, starts), 325: (4, list(map(len, tiles)))}
    return tiff(kept | {int(name[1:]): (4, values) for name, values in more.items()}, b"".join(tiles))


def pillow(mode: str, kind: str, **options: Any) -> bytes:
    """The picture in a mode of Pillow's."""
    buffer = io.BytesIO()
    PillowImage.fromarray(SMOOTH).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


# --- the table -----------------------------------------------------------------------------------------------------

_TURNED = {
    1: SMOOTH, 2: SMOOTH[:, ::-1], 3: SMOOTH[::-1, ::-1], 4: SMOOTH[::-1], 5: SMOOTH.transpose(1, 0, 2),
    6: np.rot90(SMOOTH, -1), 7: SMOOTH[::-1, ::-1].transpose(1, 0, 2), 8: np.rot90(SMOOTH),
}  # fmt: skip
_RED = SMOOTH[..., :1]
_GREY = np.repeat(_RED, 3, axis=2)
_JPEG, _PNG = encode(SMOOTH, "jpeg"), encode(SMOOTH)
_BOMB = deflated_zeros(10**8)
_HALF = np.full((HEIGHT, WIDTH), 128, np.uint8)
_RGBA = np.dstack([SMOOTH, _HALF])
_PLANES = np.ascontiguousarray(SMOOTH.transpose(2, 0, 1)).tobytes()
_BIT = np.packbits(SMOOTH[..., 0] > 100, axis=1).tobytes()
_AREA = WIDTH * HEIGHT
_JPEG_TOLERANCE = 8
_BROKEN_TEXT = bytearray(png_chunk(b"tEXt", b"a\0b"))
_BROKEN_TEXT[-1] ^= 1

READ: dict[str, tuple[bytes, Image, int]] = {
    "png": (_PNG, SMOOTH, 0),
    "png: text with a wrong checksum": (png_with(bytes(_BROKEN_TEXT)), SMOOTH, 0),
    "png: text bomb": (png_with(png_chunk(b"zTXt", b"a\0\0" + _BOMB)), SMOOTH, 0),
    "png: profile bomb": (png_with(png_chunk(b"iCCP", b"a\0\0" + _BOMB)), SMOOTH, 0),
    "png: 5000 texts": (png_with(*(png_chunk(b"tEXt", b"k%d\0v" % n) for n in range(5000))), SMOOTH, 0),
    "png: gamma": (png_with(png_chunk(b"gAMA", struct.pack(">I", 100_000))), SMOOTH, 0),
    "png: profile": (
        encode(SMOOTH, icc_profile=ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()), SMOOTH, 0),
    "png: one frame": (png_with(png_chunk(b"acTL", struct.pack(">II", 1, 0))), SMOOTH, 0),
    "png: a transparent colour": (encode(SMOOTH, transparency=(0, 0, 0)), SMOOTH, 0),
    "png: grey and alpha": (pillow("LA", "png"), np.asarray(PillowImage.fromarray(SMOOTH).convert("L"))[..., None], 0),
    "png: bytes behind its end": (_PNG + b"junk" * 99, SMOOTH, 0),
    "png: 16 bits": (encode_16bit(SMOOTH[..., ::-1].astype(np.uint16) << 8), SMOOTH, 0),
    "jpeg": (_JPEG, SMOOTH, _JPEG_TOLERANCE),
    "jpeg: half colour": (encode(SMOOTH, "jpeg", subsampling=2), SMOOTH, 16),
    "jpeg: progressive": (encode(SMOOTH, "jpeg", progressive=True), SMOOTH, _JPEG_TOLERANCE),
    "jpeg: stored as rgb": (encode(SMOOTH, "jpeg", keep_rgb=True), SMOOTH, _JPEG_TOLERANCE),
    "jpeg: restart markers": (encode(SMOOTH, "jpeg", restart_marker_blocks=2), SMOOTH, _JPEG_TOLERANCE),
    "jpeg: cmyk": (encode_mode(SMOOTH, "CMYK", "jpeg"), SMOOTH, 16),
    "jpeg: extended sequential": (jpeg_frame(0, b"", 0xC1), SMOOTH, _JPEG_TOLERANCE),
    "jpeg: another behind it": (_JPEG + encode(255 - SMOOTH, "jpeg"), SMOOTH, _JPEG_TOLERANCE),
    "jpeg: 12 MB of profile": (
        jpeg_with(*(segment(0xE2, b"ICC_PROFILE\0" + bytes((n + 1, 190)) + bytes(65_000)) for n in range(190))),
        SMOOTH, _JPEG_TOLERANCE),
    "jpeg: 12 MB of comments": (jpeg_with(*[segment(0xFE, bytes(65_000))] * 190), SMOOTH, _JPEG_TOLERANCE),
    "jpeg: thumbnail in its EXIF": (jpeg_with(segment(0xE1, exif(6) + _JPEG)), _TURNED[6], _JPEG_TOLERANCE),
    "jpeg: two EXIF blocks, 6 and 1": (
        jpeg_with(segment(0xE1, exif(6)), segment(0xE1, exif(1))), _TURNED[6], _JPEG_TOLERANCE),
    "jpeg: two EXIF blocks, 1 and 6": (
        jpeg_with(segment(0xE1, exif(1)), segment(0xE1, exif(6))), SMOOTH, _JPEG_TOLERANCE),
    "jpeg: torn EXIF": (jpeg_with(segment(0xE1, exif(6)[:20])), SMOOTH, _JPEG_TOLERANCE),
    "jpeg: orientation as a long": (jpeg_with(segment(0xE1, exif(6, kind=4))), _TURNED[6], _JPEG_TOLERANCE),
    **{
        f"jpeg: orientation {value} {order}": (
            jpeg_with(segment(0xE1, exif(value, order))), _TURNED.get(value, SMOOTH), _JPEG_TOLERANCE)
        for value in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 60_000) for order in "<>"
    },
    "bmp": (encode(SMOOTH, "bmp"), SMOOTH, 0),
    "bmp: from the top": (bmp(24, 0, SMOOTH[..., ::-1].tobytes(), height=-HEIGHT), SMOOTH, 0),
    "bmp: 32 bits": (bmp(32, 0, packed((16, 8, 0), (8, 8, 8), "<u4")), SMOOTH, 0),
    "bmp: masks 565": (bmp(16, 3, packed((11, 5, 0), (5, 6, 5), "<u2"), (0xF800, 0x7E0, 0x1F)), SMOOTH, 7),
    "bmp: masks 555": (bmp(16, 3, packed((10, 5, 0), (5, 5, 5), "<u2"), (0x7C00, 0x3E0, 0x1F)), SMOOTH, 7),
    "bmp: masks 888": (bmp(32, 3, packed((16, 8, 0), (8, 8, 8), "<u4"), (0xFF0000, 0xFF00, 0xFF)), SMOOTH, 0),
    "webp: lossless": (encode(SMOOTH, "webp"), SMOOTH, 0),
    "webp: lossy": (encode(SMOOTH, "webp", lossless=False, quality=95), SMOOTH, 24),
    "webp: alpha": (encode(_RGBA, "webp", exact=True), SMOOTH, 0),
    **{f"webp: orientation {value}": (encode(SMOOTH, "webp", value), _TURNED[value], 0) for value in (2, 5, 6, 7)},
    **{f"png: orientation {value}": (encode(SMOOTH, "png", value), _TURNED[value], 0) for value in (2, 5, 6, 7)},
    **{f"tiff: orientation {value}": (encode(SMOOTH, "tiff", value), _TURNED[value], 0) for value in range(1, 9)},
    "tiff": (tiff(tiff_tags(), SMOOTH.tobytes()), SMOOTH, 0),
    "tiff: big-endian": (tiff(tiff_tags(), SMOOTH.tobytes(), ">"), SMOOTH, 0),
    "bigtiff": (tiff(tiff_tags(), SMOOTH.tobytes(), big=True), SMOOTH, 0),
    "bigtiff: big-endian": (tiff(tiff_tags(), SMOOTH.tobytes(), ">", big=True), SMOOTH, 0),
    "tiff: planes": (
        tiff(tiff_tags(t284=[2], t273=[0, _AREA, 2 * _AREA], t279=[_AREA] * 3), _PLANES), SMOOTH, 0),
    "tiff: tiles": (tiled_tiff(32), SMOOTH, 0),
    "tiff: one strip of any length": (tiff(tiff_tags(t278=[2**32 - 1]), SMOOTH.tobytes()), SMOOTH, 0),
    "tiff: jpeg inside": (encode(SMOOTH, "tiff", compression="jpeg"), SMOOTH, 24),
    **{f"tiff: {kind}": (encode(SMOOTH, "tiff", compression=kind), SMOOTH, 0)
       for kind in ("tiff_lzw", "tiff_deflate", "packbits")},
    "tiff: cmyk": (pillow("CMYK", "tiff"), SMOOTH, 1),
    "tiff: ycbcr": (pillow("YCbCr", "tiff"), SMOOTH, 3),
    "tiff: opaque": (encode(np.dstack([SMOOTH, _HALF | 255]), "tiff"), SMOOTH, 0),
    "tiff: grey where white is zero": (tiff(tiff_tags(1, 8, 0), _RED.tobytes()), 255 - _GREY, 0),
    "tiff: 16 bits of grey": (tiff(tiff_tags(1, 16, 1), (_RED.astype("<u2") << 8).tobytes()), _GREY, 0),
    "tiff: 1 bit where white is zero": (tiff(tiff_tags(1, 1, 0), _BIT), np.where(_GREY > 100, 0, 255), 0),
    "tiff: fax": (
        pillow("1", "tiff", compression="group4"),
        np.asarray(PillowImage.fromarray(SMOOTH).convert("1").convert("RGB")), 0),
}  # fmt: skip
"""Name to bytes, the RGB pixels that they must give, and the tolerance in grey levels."""

_SIGNED = tiff(tiff_tags(1, 16, 1, t339=[2]), (_RED.astype("<i2") * 100).tobytes())
REFUSED: dict[str, tuple[bytes, str, str]] = {
    "png: several frames": (
        encode(SMOOTH, save_all=True, append_images=[PillowImage.fromarray(255 - SMOOTH)]), "unsupported", "several"),
    "png: a chunk of 4 GB": (_PNG[:33] + b"\xff\xff\xff\xff" + _PNG[37:], "damaged", "cut off: a chunk ends"),
    "png: 65537 chunks": (png_with(png_chunk(b"tEXt", b"a\0b") * 65537), "damaged", "more than 65536 chunks"),
    "png: no end": (_PNG[:-12], "damaged", "cut off"),
    "png: zero width": (_PNG[:16] + struct.pack(">II", 0, 48) + _PNG[24:], "damaged", "width"),
    "jpeg: 12 bits": (jpeg_frame(4, b"\x0c"), "unsupported", "12 bits"),
    "jpeg: lossless": (jpeg_frame(0, b"", 0xC3), "damaged", "cut off"),
    "jpeg: zero height": (jpeg_frame(5, b"\0\0"), "damaged", "width"),
    "jpeg: two frame headers": (jpeg_with(_JPEG[(at := _JPEG.index(b"\xff\xc0")) : at + 19]), "damaged", "cut off"),
    "jpeg: 201 scans": (jpeg_of_many_scans(201), "damaged", "more than 200 scans"),
    "jpeg: strip of 65535 x 65535": (jpeg_frame(5, b"\xff\xff\xff\xff"), "large", "by its header"),
    "bmp: swapped masks": (
        bmp(32, 3, packed((0, 8, 16), (8, 8, 8), "<u4"), (0xFF, 0xFF00, 0xFF0000)), "unsupported", "colour masks"),
    "bmp: 10-bit masks": (
        bmp(32, 3, packed((22, 12, 2), (10, 10, 10), "<u4"), (0x3FF << 22, 0x3FF << 12, 0x3FF << 2)),
        "unsupported", "colour masks"),
    "webp: animated": (
        encode(SMOOTH, "webp", save_all=True, append_images=[PillowImage.fromarray(255 - SMOOTH)]),
        "unsupported", "several"),
    "webp: cut": (encode(SMOOTH, "webp", lossless=False)[:-100], "damaged", "cut off"),
    "tiff: huge tiles": (tiled_tiff(32, t322=[16_000], t323=[16_000]), "damaged", "tiles of 256000000 pixels"),
    "tiff: 16 bits where white is zero": (
        tiff(tiff_tags(1, 16, 0), (_RED.astype("<u2") << 8).tobytes()), "unsupported", "white is zero"),
    "tiff: signed": (_SIGNED, "unsupported", "signed"),
    "tiff: 32 bits": (tiff(tiff_tags(1, 32, 1), (_RED.astype("<u4") << 24).tobytes()), "unsupported", "32 bits"),
    **{f"tiff: {bits} bits of grey": (
        tiff(tiff_tags(1, bits, 1), bytes(_AREA * bits // 8)), "unsupported", f"{bits} bits") for bits in (2, 4, 12)},
    "tiff: lab": (pillow("LAB", "tiff"), "unsupported", "Lab"),
    "tiff: 5 channels": (
        tiff(tiff_tags(5, t338=[0, 0]), np.dstack([SMOOTH, SMOOTH[..., :2]]).tobytes()), "unsupported", "5 samples"),
    "tiff: transparent": (encode(_RGBA, "tiff"), "unsupported", "transparent"),
    "tiff: premultiplied": (
        tiff(tiff_tags(4, t338=[1]), np.dstack([SMOOTH // 2, _HALF]).tobytes()), "unsupported", "transparent"),
    "tiff: transparent, 16 bits": (
        tiff(tiff_tags(4, 16, t338=[2]), (_RGBA.astype("<u2") << 8).tobytes()), "unsupported", "transparent"),
    "tiff: grey and alpha": (pillow("LA", "tiff"), "unsupported", "2 samples"),
    "tiff: cut": (tiff(tiff_tags(), SMOOTH.tobytes())[:2000], "damaged", "width and height"),
    "tiff: strip outside": (tiff(tiff_tags(t273=[10**6]), SMOOTH.tobytes()), "damaged", "cut off"),
    "ico": (pillow("RGB", "ico", sizes=[(48, 48)]), "unsupported", "ICO"),
    "gif": (pillow("P", "gif"), "unsupported", "GIF"),
    "ppm": (pillow("RGB", "ppm"), "unsupported", "PNM"),
    "jpeg 2000": (b"\x00\x00\x00\x0cjP  \r\n\x87\n" + bytes(40), "unsupported", "JPEG 2000"),
    "jpeg xl": (b"\x00\x00\x00\x0cJXL \r\n\x87\n" + bytes(40), "unsupported", "JPEG XL"),
    "radiance": (cv2.imencode(".hdr", SMOOTH.astype(np.float32))[1].tobytes(), "unsupported", "Radiance"),
    "openexr": (b"v/1\x01" + bytes(40), "unsupported", "OpenEXR"),
    "pdf": (b"%PDF-1.7\n" + bytes(40), "unsupported", "PDF"),
    "svg": (b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>', "unsupported", "text starting"),
    "gzip": (b"\x1f\x8b\x08" + bytes(40), "unsupported", "gzip"),
    "zip": (b"PK\x03\x04" + bytes(40), "unsupported", "ZIP"),
    "video": (b"\x00\x00\x00\x18ftypmp42" + bytes(40), "unsupported", "video"),
}  # fmt: skip
"""Name to bytes, how they are refused, and words of the message."""
