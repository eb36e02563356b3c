"""Which picture files the trainer takes as they are, and how the others are re-encoded for it."""

from __future__ import annotations

import io

import cv2
from PIL import Image as PilImage

from serving.image_headers import read_header
from serving.images import Image, ImageLimits, decode_image
from tasks.scanning.picture_facts import jpeg_end

_SUFFIXES = {
    "jpeg": {".jpg", ".jpeg"}, "png": {".png"}, "bmp": {".bmp"}, "webp": {".webp"}, "tiff": {".tif", ".tiff"},
}  # fmt: skip
_ORIENTATION = 0x0112


def decode_checked(data: bytes) -> Image:
    """RGB pixels of a file that validation has held against the limits; what its header says is the limit here."""
    header = read_header(data)
    width, height = header.wh if header is not None and header.wh is not None else (1, 1)
    return decode_image(data, ImageLimits(max_bytes=len(data), max_pixels=width * height))


def trainer_reads_it(data: bytes, suffix: str) -> bool:
    """Whether the trainer takes this file as it is and sees the pixels that the service sees.

    It goes by the name where the service goes by the content, checks files with Pillow, and rewrites JPEGs that do not
    end with their end marker.
    """
    header = read_header(data)
    if header is None or suffix.lower() not in _SUFFIXES[header.kind] or jpeg_end(data) not in (None, "ok"):
        return False
    try:
        with PilImage.open(io.BytesIO(data)) as image:
            image.verify()
            return image.format is not None and (image.format.lower() == header.kind or image.format == "MPO")
    except Exception:  # noqa: BLE001  Pillow raises anything on damaged files; whatever it is, the trainer refuses them.
        return False


def is_turned(data: bytes) -> bool:
    """Whether an EXIF orientation other than "as stored" is set."""
    with PilImage.open(io.BytesIO(data)) as image:
        return bool(image.getexif().get(_ORIENTATION, 1) != 1)


def displayed_wh(data: bytes, image: Image | None) -> tuple[int, int]:
    """Width and height as displayed; the header has them when no orientation is set."""
    if image is not None:
        return image.shape[1], image.shape[0]
    header = read_header(data)
    assert header is not None  # noqa: S101  trainer_reads_it has read it.
    assert header.wh is not None  # noqa: S101
    return header.wh


def encode_png(image: Image) -> bytes:
    """The picture as an 8-bit RGB PNG; fast rather than small."""
    return bytes(cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_PNG_COMPRESSION, 1])[1])
