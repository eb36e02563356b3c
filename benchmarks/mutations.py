"""Broken requests: pictures of every kind and bodies of every form, damaged in the ways that files and clients do.

The same seed gives the same requests.
"""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image as PillowImage

FORM_EDGE = "----edge7f3a"
FRAME = "X-Passline-Frame"
TYPES = (
    "", "image/jpeg", "image/png", "application/octet-stream", "application/json", "text/plain", "application/x-no",
    f"multipart/form-data; boundary={FORM_EDGE}", "multipart/form-data", 'multipart/mixed; boundary="', ";;=,\xff",
)  # fmt: skip
FRAME_LINES = (
    "shape=48,64,3; order=rgb", "shape=48,64,3; order=bgr", "shape=48,64; order=gray", "shape=64,48,3; order=rgb",
    "shape=48,64,4; order=rgb", "shape=0,0,0; order=rgb", "shape=999999999,999999999,3; order=bgr", "640x480x3", "",
)  # fmt: skip
NUMBERS = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
ANNOTATED_SHARE, LIST_SHARE, UNTOUCHED_SHARE = 0.1, 0.15, 0.1


@dataclass(frozen=True)
class Case:
    """One request to POST."""

    path: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]


def cases(seed: int) -> Iterator[Case]:
    """Requests without end."""
    rng = random.Random(seed)
    while True:
        path = "/v1/inspect/annotated" if rng.random() < ANNOTATED_SHARE else "/v1/inspect"
        body, headers = rng.choice(_FORMS)(rng)
        if rng.random() < 0.3:
            body = mutate(rng, body)
        if rng.random() < 0.3:
            headers["Content-Type"] = rng.choice(TYPES)
        if rng.random() < 0.02:
            headers["Content-Encoding"] = rng.choice(("gzip", "identity", "br", "\xff"))
        named = ((name.encode(), value.encode("latin-1")) for name, value in headers.items() if value)
        yield Case(path, body, tuple(named))


def mutate(rng: random.Random, data: bytes) -> bytes:
    """The data with one to four damages."""
    for _ in range(rng.randint(1, 4)):
        if not data:
            return data
        data = rng.choice(_DAMAGES)(rng, data)
    return data


def damaged_picture(rng: random.Random) -> bytes:
    """A picture file, nearly always damaged; of the PNGs half get right checksums again, to reach what lies behind."""
    data = rng.choice(seed_pictures())
    if rng.random() < UNTOUCHED_SHARE:
        return data
    data = mutate(rng, data)
    return with_checksums(data) if data.startswith(b"\x89PNG") and rng.random() < 0.5 else data


@cache
def seed_pictures() -> tuple[bytes, ...]:
    """One whole picture of each kind."""
    noise = np.random.default_rng(7).integers(0, 60, (48, 64, 3))
    y, x = np.mgrid[0:48, 0:64]
    rgb = (np.stack([x * 3, y * 4, x + y], axis=-1) + noise).clip(0, 255).astype(np.uint8)
    colour, grey = PillowImage.fromarray(rgb), PillowImage.fromarray(rgb).convert("L")
    alpha = PillowImage.fromarray(np.dstack([rgb, np.full((48, 64), 128, np.uint8)]))
    deep = PillowImage.fromarray(rgb[..., 0].astype(np.uint16) << 8)
    exif = PillowImage.Exif()
    exif[0x112] = 6
    return (
        *(
            _saved(colour, "jpeg", **options)
            for options in ({}, {"progressive": True}, {"exif": exif}, {"quality": 100})
        ),
        *(_saved(one, "jpeg") for one in (grey, colour.convert("CMYK"))),
        *(_saved(one, "png") for one in (colour, grey, alpha, deep, colour.convert("P"), colour.convert("1"))),
        *(_saved(one, "bmp") for one in (colour, grey, colour.convert("1"))),
        *(_saved(colour, "webp", **options) for options in ({}, {"lossless": True}, {"exif": exif})),
        _saved(alpha, "webp"),
        *(_saved(colour, "tiff", compression=kind) for kind in ("raw", "tiff_lzw", "tiff_deflate", "packbits", "jpeg")),
        *(_saved(one, "tiff") for one in (grey, deep, alpha, colour.convert("CMYK"), colour.convert("P"))),
        _saved(colour.convert("1"), "tiff", compression="group4"),
        _saved(colour, "gif"),
        b"<html>no picture</html>",
    )


def _saved(image: PillowImage.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


# --- bodies -------------------------------------------------------------------------------------------------------


def _raw(rng: random.Random) -> tuple[bytes, dict[str, str]]:
    return damaged_picture(rng), {"Content-Type": rng.choice(TYPES)}


def _form(rng: random.Random) -> tuple[bytes, dict[str, str]]:
    parts = []
    for number in range(_count(rng)):
        frame = f"{FRAME}: {rng.choice(FRAME_LINES)}\r\n" if rng.random() < 0.1 else ""
        name = rng.choice(("a.jpg", "шайба №1.png", 'it\'s 100% #1 & "co".jpg', "", "\x00", "x" * 3000))
        head = f'Content-Disposition: form-data; name="i{number}"; filename="{name}"\r\n{frame}\r\n'
        parts.append(f"--{FORM_EDGE}\r\n{head}".encode() + damaged_picture(rng) + b"\r\n")
    content_type = f"multipart/form-data; boundary={FORM_EDGE}"
    return b"".join(parts) + f"--{FORM_EDGE}--\r\n".encode(), {"Content-Type": content_type}


def _json(rng: random.Random) -> tuple[bytes, dict[str, str]]:
    items = [_json_item(rng) for _ in range(_count(rng))]
    content = {"image": items[0]} if len(items) == 1 and rng.random() < 0.8 else {"images": items}
    return json.dumps(content).encode(), {"Content-Type": "application/json"}


def _json_item(rng: random.Random) -> object:
    if rng.random() < 0.1:
        return rng.choice((None, 3, "", "***", [], {"shape": [-1, 2, 3], "order": "rgb", "data": ""}))
    if rng.random() < 0.15:
        samples = rng.randbytes(48 * 64 * 3)
        return {"shape": [48, 64, 3], "order": "bgr", "data": base64.b64encode(samples).decode()}
    encode = rng.choice((base64.b64encode, base64.encodebytes, base64.urlsafe_b64encode))
    front = rng.choice(("", "data:image/jpeg;base64,", "data:,"))
    return front + encode(damaged_picture(rng)).decode().rstrip(rng.choice(("", "=")))


def _frame(rng: random.Random) -> tuple[bytes, dict[str, str]]:
    size = rng.choice((48 * 64 * 3, 48 * 64, 48 * 64 * 3 - 1, 0, 1))
    return rng.randbytes(size), {FRAME: rng.choice(FRAME_LINES)}


def _count(rng: random.Random) -> int:
    return rng.choice((2, 3, 16, 17)) if rng.random() < LIST_SHARE else 1


_FORMS = (_raw, _raw, _raw, _form, _json, _frame)

# --- damages ------------------------------------------------------------------------------------------------------

Damage = Callable[[random.Random, bytes], bytes]


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _drop(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randint(1, 64) :]


def _repeat(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start : start + rng.randint(1, 256)] * rng.randint(2, 40) + data[start:]


def _splice(rng: random.Random, data: bytes) -> bytes:
    other = rng.choice(seed_pictures())
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]


def _number(rng: random.Random, data: bytes) -> bytes:
    """An odd number over a field, in the header twice as often as elsewhere: sizes, counts, offsets, lengths."""
    layout = rng.choice("BHI")
    value = struct.pack(rng.choice("<>") + layout, rng.choice(NUMBERS) % 256 ** struct.calcsize(layout))
    start = rng.randrange(min(len(data), 64 if rng.random() < 0.7 else len(data)))
    return data[:start] + value + data[start + len(value) :]


_DAMAGES: tuple[Damage, ...] = (_flip, _flip, _cut, _drop, _repeat, _splice, _number, _number, _number)


def with_checksums(png: bytes) -> bytes:
    """A PNG whose chunks have the checksums that belong to their content, as far as chunks can be told apart."""
    parts, at = [png[:8]], 8
    while at + 12 <= len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        body = png[at + 4 : at + 8 + size]
        parts.append(png[at : at + 4] + body + struct.pack(">I", zlib.crc32(body)))
        at += 12 + size
    return b"".join(parts)
