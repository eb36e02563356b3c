"""From the bytes of a picture file to pixels, the same pixels that training sees.

One reader for the whole project: OpenCV, called the way the trainer calls it. JPEG, PNG, BMP, WebP and TIFF become
8-bit RGB in displayed orientation. The rules, all of them the trainer's:

- EXIF orientation is applied (JPEG, PNG, WebP, TIFF). A raw ImageMagick profile inside a PNG is not EXIF: ignored.
- Alpha is dropped, not composited: hidden pixels show the colour that they carry. Transparent TIFFs are refused.
- 16-bit samples keep their high byte. A camera's 12 bits in a 16-bit file come out dark, here as in training.
- Grey is repeated into three channels; palettes, 1-bit and CMYK are converted to colours.

What the decoder would get wrong without a word is refused: signed samples, 16-bit samples where white is zero, Lab
colours, unusual colour masks. A file with several pages or frames is refused, because choosing one would be a guess.
The exception is a JPEG with more pictures behind the first (MPO, motion photo): every reader shows the first.

Known limit: a JPEG whose end is missing is refused, but one that was cut and then given an end marker is not. The
decoder fills the missing part with grey and tells nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from data_contracts.errors import (
    EmptyImage,
    ImageError,
    ImageTooLarge,
    ImageTooSmall,
    Problem,
    UndecodableImage,
    UnsupportedImage,
)
from serving.image_headers import name_other_kind, read_header
from serving.image_kinds import ImageHeader

Image = npt.NDArray[np.uint8]
"""uint8 (height, width, 3), RGB, displayed orientation, contiguous."""

READABLE = "a JPEG, PNG, BMP, WebP or TIFF picture"


@dataclass(frozen=True)
class ImageLimits:
    """What a picture may weigh: the file in bytes, the picture in width times height, its shorter side in pixels."""

    max_bytes: int
    max_pixels: int
    min_side_px: int = 1


def decode_image(data: bytes, limits: ImageLimits) -> Image:
    """RGB pixels of a picture file. The limits are checked on the header, before anything is allocated.

    Raises EmptyImage, ImageTooLarge, ImageTooSmall, UnsupportedImage or UndecodableImage.
    """
    header = _check_header(data, limits)
    try:
        image = _decode_tiff(data) if header.kind == "tiff" else _decode(data)
    except cv2.error as error:
        raise _damaged(header, f"the decoder refused it ({error.code})") from None
    if image is None:
        raise _damaged(header, "it is cut off or its data are broken")
    height, width = image.shape[:2]
    if header.wh not in ((width, height), (height, width)):
        raise _damaged(header, f"the header says {header.wh}, the picture has {(width, height)} pixels")
    return image


def read_image(path: Path, limits: ImageLimits) -> Image:
    """RGB pixels of the picture file at `path`; errors name the file. Raises OSError when it cannot be read."""
    with path.open("rb") as file:
        data = file.read(limits.max_bytes + 1)
    try:
        return decode_image(data, limits)
    except ImageError as error:
        problems = (problem for problem in error.problems if isinstance(problem, Problem))
        raise type(error)(
            *(Problem(f"{path}: {found.subject}", found.expected, found.got, found.action) for found in problems)
        ) from None


def _check_header(data: bytes, limits: ImageLimits) -> ImageHeader:
    if not data:
        raise EmptyImage(Problem("picture", READABLE, "no bytes", "Send the picture's bytes."))
    if len(data) > limits.max_bytes:
        got = f"more than {limits.max_bytes} bytes"
        raise ImageTooLarge(Problem("picture size", f"at most {limits.max_bytes} bytes", got, "Send a smaller file."))
    header = read_header(data)
    if header is None:
        raise UnsupportedImage(Problem("picture kind", READABLE, name_other_kind(data), "Convert it first."))
    if header.wh is None:
        raise _damaged(header, "the header names no valid width and height")
    check_size(header.wh, limits)
    _check_samples(header)
    return header


def check_size(wh: tuple[int, int], limits: ImageLimits) -> None:
    """Raise ImageTooLarge or ImageTooSmall for a picture that its header says to be `wh` pixels."""
    width, height = wh
    if width * height > limits.max_pixels:
        expected = f"at most {limits.max_pixels} pixels"
        got = f"{width} x {height} = {width * height} pixels by its header"
        raise ImageTooLarge(Problem("picture size", expected, got, "Send a smaller picture."))
    if min(width, height) < limits.min_side_px:
        got = f"{width} x {height} pixels"
        raise ImageTooSmall(
            Problem("picture size", f"sides of at least {limits.min_side_px} pixels", got, "Send a larger picture.")
        )


def _check_samples(header: ImageHeader) -> None:
    if header.unreadable:
        expected = "one picture with 8 or 16 bits per sample"
        raise UnsupportedImage(Problem(f"{header.kind} file", expected, header.unreadable, "Convert it first."))
    if header.damaged:
        raise _damaged(header, header.damaged)


def _decode(data: bytes) -> Image | None:
    return _as_image(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB))


def _decode_tiff(data: bytes) -> Image | None:
    """As the trainer reads `.tif`: colour pages with their own samples, everything else through the colour reader.

    The two ways differ by one grey level for 16-bit colour, so the way matters.
    """
    read, pages = cv2.imdecodemulti(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED, range=(0, 1))
    if not read or pages[0].ndim != 3:
        return _decode(data)
    page = pages[0]
    if page.dtype not in (np.uint8, np.uint16) or page.shape[2] < 3:
        got = f"{page.shape[2]} channels of {page.dtype}"
        raise UnsupportedImage(Problem("tiff file", "grey or colour with 8 or 16 bits", got, "Convert it first."))
    if page.shape[2] == 4 and page[..., 3].min() < np.iinfo(page.dtype).max:
        # The decoder has multiplied the colours with it, or the file's writer has: nobody can tell which they were.
        raise UnsupportedImage(Problem("tiff file", "opaque pixels", "transparent ones", "Convert it first."))
    if page.dtype == np.uint16:
        page = (page >> 8).astype(np.uint8)
    return np.ascontiguousarray(page[..., 2::-1])


def _as_image(decoded: Any) -> Image | None:
    return None if decoded is None else np.ascontiguousarray(decoded, dtype=np.uint8)


def _damaged(header: ImageHeader, how: str) -> UndecodableImage:
    return UndecodableImage(
        Problem(f"{header.kind} file", "an undamaged picture", how, "Send the original file again.")
    )
