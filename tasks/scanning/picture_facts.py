"""What one picture file is: its content's hash, how it decodes, and what its pixels look like.

All of it depends on the file's bytes and the limits alone. Pictures are decoded in full, with the reader that serves:
what the scan can read, training and service can read.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image as PilImage

from data_contracts.base import sha256_of
from data_contracts.errors import EmptyImage, ImageError, ImageTooLarge, Problem, UnsupportedImage
from serving.images import READABLE, Image, ImageLimits, decode_image

THUMBNAIL_SIDE = 32
"""A thumbnail has so many rows and columns, whatever the picture's shape."""
NOISE_LEVELS = 4.0
"""A frequency of less than this says nothing: saving the picture as JPEG changes it by a part of that."""

A_READABLE_FILE = "a file that can be read"
"""Expected of a picture where the file system gave an error: the file may be whole next time."""

_JPEG_END = b"\xff\xd9"
_PNG_BITS_AT = 24
_TIFF_BITS = 258
_ORIENTATION = 0x0112
_HASH_SIDE = 8

Grey = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class PictureFacts:
    """One picture file. Sizes are those of the displayed picture; None where it could not be decoded."""

    size_bytes: int
    sha256: str
    width_px: int | None = None
    height_px: int | None = None
    mode: str | None = None
    bit_depth: int | None = None
    exif_orientation: int | None = None
    jpeg_end: str | None = None
    perceptual_hash: str | None = None
    brightness: float | None = None
    contrast: float | None = None
    sharpness: float | None = None
    thumbnail: bytes | None = None
    rule: str | None = None
    expected: str | None = None
    got: str | None = None


def read_picture(path: Path, limits: ImageLimits, known: dict[str, PictureFacts]) -> PictureFacts:
    """The facts of the file at `path`; those of `known` (by SHA-256) where it holds the same bytes.

    A file that is larger than the limit is hashed piece by piece and not held in memory.
    """
    try:
        data, size, sha256 = _read(path, limits.max_bytes)
    except OSError as error:
        unread = PictureFacts(0, sha256_of(str(path).encode("utf-8", "surrogateescape")))
        return replace(unread, rule="picture_undecodable", expected=A_READABLE_FILE, got=_reason(error))
    return known.get(sha256) or picture_facts(data, PictureFacts(size, sha256), limits)


def _read(path: Path, limit_bytes: int) -> tuple[bytes, int, str]:
    """The first bytes of a plain file (one more than the limit, so that the limit shows), its size and its SHA-256."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:  # noqa: PTH123 - a pipe in a picture's place must not be waited for
        size = os.fstat(handle).st_size
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("it is no plain file")
        data = file.read(min(size, limit_bytes) + 1)
        digest = hashlib.sha256(data)
        while piece := file.read(2**20):
            digest.update(piece)
    return data, size, digest.hexdigest()


def _reason(error: OSError) -> str:
    return error.strerror.lower() if error.strerror else str(error)


def picture_facts(data: bytes, facts: PictureFacts, limits: ImageLimits) -> PictureFacts:
    """`facts` (size and hash) with what decoding `data` tells, or with the rule that it breaks."""
    try:
        pixels = decode_image(data, limits)
    except ImageError as error:
        problem = error.problems[0]
        expected, got = (problem.expected, problem.got) if isinstance(problem, Problem) else (READABLE, str(problem))
        return replace(facts, rule=_decode_rule(error), expected=expected, got=got)
    mode, bit_depth, orientation = header_facts(data)
    height, width = pixels.shape[:2]
    look = _look(pixels)
    return replace(
        facts, width_px=width, height_px=height, mode=mode, bit_depth=bit_depth, exif_orientation=orientation,
        jpeg_end=jpeg_end(data), perceptual_hash=look[0], brightness=look[1], contrast=look[2], sharpness=look[3],
        thumbnail=look[4],
    )  # fmt: skip


def _decode_rule(error: ImageError) -> str:
    if isinstance(error, ImageTooLarge):
        return "picture_too_large"
    return "picture_unsupported" if isinstance(error, EmptyImage | UnsupportedImage) else "picture_undecodable"


def _look(pixels: Image) -> tuple[str, float, float, float, bytes]:
    """Perceptual hash, brightness, contrast, sharpness and thumbnail of the displayed 8-bit picture."""
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    brightness, contrast = cv2.meanStdDev(grey)
    edges = cv2.Laplacian(grey, cv2.CV_16S)
    # The variance from sums: OpenCV's standard deviation of 16-bit numbers takes five times as long.
    sharpness = cv2.norm(edges, cv2.NORM_L2SQR) / edges.size - cv2.mean(edges)[0] ** 2
    thumbnail = cv2.resize(grey, (THUMBNAIL_SIDE, THUMBNAIL_SIDE), interpolation=cv2.INTER_AREA)
    return (
        perceptual_hash(thumbnail),
        round(float(brightness[0, 0]), 3),
        round(float(contrast[0, 0]), 3),
        round(sharpness, 3),
        thumbnail.tobytes(),
    )


def perceptual_hash(thumbnail: Grey) -> str:
    """64 bits in hexadecimal: which of the lowest 8 x 8 frequencies lie above their median, and above noise.

    The first one, the brightness, does not count. A flat picture has no bits.

    >>> perceptual_hash(np.full((32, 32), 7, np.uint8))
    '0000000000000000'
    """
    lowest = cv2.dct(thumbnail.astype(np.float32))[:_HASH_SIDE, :_HASH_SIDE].ravel()
    lowest[0] = 0
    return np.packbits(lowest > max(float(np.median(lowest[1:])), NOISE_LEVELS)).tobytes().hex()


def header_facts(data: bytes) -> tuple[str | None, int | None, int | None]:
    """Pillow's mode, bits per sample and the EXIF orientation; None where Pillow cannot read what the decoder could."""
    try:
        with PilImage.open(io.BytesIO(data)) as image:
            orientation = image.getexif().get(_ORIENTATION) if _may_hold_exif(data) else None
            return image.mode, _bit_depth(data, image), orientation if isinstance(orientation, int) else None
    except Exception:  # noqa: BLE001  Damaged headers raise anything from SyntaxError to struct.error in Pillow.
        return None, None, None


def _may_hold_exif(data: bytes) -> bool:
    """Whether to ask Pillow: for a PNG without this chunk it decodes the pixels, and reads what the decoder ignores."""
    return not data.startswith(b"\x89PNG") or b"eXIf" in data


def _bit_depth(data: bytes, image: PilImage.Image) -> int:
    if image.format == "PNG":
        return data[_PNG_BITS_AT]
    if image.format == "TIFF":
        bits = image.tag_v2.get(_TIFF_BITS, (1,))  # type: ignore[attr-defined]
        return int(bits[0] if isinstance(bits, tuple) else bits)
    return 1 if image.mode == "1" else 8


def jpeg_end(data: bytes) -> str | None:
    """How a JPEG file ends: ok, trailing bytes behind the end marker, or marker missing; None for other formats."""
    if not data.startswith(b"\xff\xd8"):
        return None
    if data.endswith(_JPEG_END):
        return "ok"
    return "trailing" if _JPEG_END in data else "missing"
