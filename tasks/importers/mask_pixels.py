"""The pixels of masks: class values or grey levels, and the boxes of their connected parts."""

from __future__ import annotations

import io

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image as PillowImage

from tasks.importers.documents import DocumentError
from tasks.importers.geometry import Extent

FOREGROUND_OVER = 127
HIGHEST_CLASS_ID = 32
VOID = 255
"""The value of palette masks for pixels that belong to no class."""
CLOSING_PX = 5
LEAST_PIXELS = 9
MAX_PIXELS = 2**28
MOST_GREY_SHARE = 0.1
"""At most this share of a mask's pixels is neither a class id nor black nor white: smoothed edges."""

Mask = npt.NDArray[np.uint8]
"""uint8 (height, width)"""


def read_mask(data: bytes) -> Mask:
    """Class values or grey levels of a mask, (height, width). Raises DocumentError."""
    try:
        with PillowImage.open(io.BytesIO(data)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise DocumentError(f"{image.width} x {image.height} pixels")
            if image.mode in ("P", "L", "1"):
                pixels = np.asarray(image)
                return pixels.astype(np.uint8) * 255 if image.mode == "1" else np.array(pixels, np.uint8)
            if image.mode.startswith("I"):
                return _of_wide(np.asarray(image))
            colours = np.asarray(image.convert("RGB"))
    except DocumentError:
        raise
    except Exception as error:  # noqa: BLE001  Damaged files raise anything in Pillow.
        raise DocumentError(f"a file that is no picture ({error})") from None
    if (colours != colours[..., :1]).any():
        raise DocumentError("a mask in colours, which name no classes")
    return np.array(colours[..., 0], np.uint8)


def looks_like_mask(data: bytes) -> bool:
    """Whether a file is a mask by its pixels: nearly all are class ids, black or white."""
    try:
        pixels = read_mask(data)
    except DocumentError:
        return False
    middle = (pixels > HIGHEST_CLASS_ID) & (pixels < 255 - HIGHEST_CLASS_ID)
    return bool(middle.mean() <= MOST_GREY_SHARE)


def _of_wide(pixels: npt.NDArray[np.generic]) -> Mask:
    """16 or 32 bits: class ids as they are, grey levels by their high byte."""
    wide = np.asarray(pixels, np.int64)
    return np.asarray(wide if wide.max(initial=0) <= VOID else wide >> 8, np.int64).clip(0, 255).astype(np.uint8)


def foreground(pixels: Mask) -> Mask:
    """1 where a mask of one class shows it: any class id, or grey levels in the brighter half."""
    small = pixels.max(initial=0) <= HIGHEST_CLASS_ID
    return (pixels > (0 if small else FOREGROUND_OVER)).astype(np.uint8)


def connected_parts(plane: Mask) -> tuple[list[Extent], int]:
    """The extents of the parts of a mask of 0 and 1, gaps closed, and the number of specks that are none."""
    # With a rim of background: at the very edge OpenCV's closing would pull parts out to the edge.
    rimmed = np.pad(plane, CLOSING_PX)
    closed = cv2.morphologyEx(rimmed, cv2.MORPH_CLOSE, np.ones((CLOSING_PX, CLOSING_PX), np.uint8))
    inner = np.ascontiguousarray(closed[CLOSING_PX:-CLOSING_PX, CLOSING_PX:-CLOSING_PX])
    count, _, stats, _ = cv2.connectedComponentsWithStats(inner, connectivity=8)
    parts = stats[1:count].tolist()
    extents = [
        (float(left), float(top), float(left + width), float(top + height))
        for left, top, width, height, pixels in parts
        if pixels >= LEAST_PIXELS
    ]
    return extents, len(parts) - len(extents)
