"""Small pictures for the data report: a whole picture with boxes marked, and a close-up where a box is small in it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from data_contracts.errors import ImageError
from serving.annotate import class_colour
from serving.images import Image, ImageLimits, read_image

THUMB_WH = (168, 224)
"""Room of a whole picture."""
CLOSE_UP_PX = 168
CLOSE_UP_BELOW_PX = 40
"""A marked box whose longer side is below this in the small picture is shown close up too."""
SMALLEST_MARK_PX = 5
JPEG_QUALITY = 78
FAULT_COLOUR = (214, 39, 40)

CxCyWh = tuple[float, float, float, float]
Rectangle = tuple[int, int, int, int]


@dataclass(frozen=True)
class Mark:
    """A box to draw, as fractions of the picture; the one that is meant is drawn strong, a faulty one in red."""

    box_cxcywh: CxCyWh
    class_id: int
    meant: bool = True
    faulty: bool = False


@dataclass(frozen=True)
class SmallPicture:
    """JPEG bytes of the whole and, where the box that is meant is small, of a close-up."""

    whole: bytes
    close_up: bytes | None

    @property
    def size_bytes(self) -> int:
        """What both weigh."""
        return len(self.whole) + len(self.close_up or b"")


def small_picture(path: Path, marks: Sequence[Mark], limits: ImageLimits) -> SmallPicture | None:
    """The picture at `path` made small with its marks; None when it cannot be read."""
    try:
        image = read_image(path, limits)
    except (ImageError, OSError):
        return None
    height, width = image.shape[:2]
    scale = min(THUMB_WH[0] / width, THUMB_WH[1] / height)
    whole = _resized(image, max(1, round(width * scale)), max(1, round(height * scale)))
    _draw(whole, marks, (0, 0, width, height), (width, height))
    meant = next((mark for mark in marks if mark.meant), None)
    close_up = None
    if meant and max(meant.box_cxcywh[2] * width, meant.box_cxcywh[3] * height) * scale < CLOSE_UP_BELOW_PX:
        view = view_around(meant.box_cxcywh, (width, height))
        close_up = _resized(image[view[1] : view[3], view[0] : view[2]], CLOSE_UP_PX, CLOSE_UP_PX)
        _draw(close_up, [mark for mark in marks if mark.meant], view, (width, height))
    return SmallPicture(_jpeg(whole), None if close_up is None else _jpeg(close_up))


def view_around(box_cxcywh: CxCyWh, image_wh: tuple[int, int]) -> Rectangle:
    """A square part of the picture around a box, three times its size; left, top, right, bottom in pixels.

    >>> view_around((0.5, 0.5, 0.1, 0.05), (640, 640))
    (224, 224, 416, 416)
    >>> view_around((0.0, 0.0, 0.01, 0.01), (640, 100))
    (0, 0, 48, 48)
    """
    centre_x, centre_y, box_width, box_height = box_cxcywh
    wished = max(48, round(3 * max(box_width * image_wh[0], box_height * image_wh[1])))
    side = min(wished, *image_wh)
    left = min(max(0, round(centre_x * image_wh[0] - side / 2)), image_wh[0] - side)
    top = min(max(0, round(centre_y * image_wh[1] - side / 2)), image_wh[1] - side)
    return left, top, left + side, top + side


def _resized(image: Image, width: int, height: int) -> Image:
    smaller = width < image.shape[1]
    made = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_CUBIC)
    return np.ascontiguousarray(made, dtype=np.uint8)


def _draw(canvas: Image, marks: Sequence[Mark], view: Rectangle, image_wh: tuple[int, int]) -> None:
    """Frames around the boxes, the one that is meant last and on top; `view` is the part of the picture shown."""
    for mark in sorted(marks, key=lambda mark: mark.meant):
        colour = FAULT_COLOUR if mark.faulty else class_colour(mark.class_id)
        left, top, right, bottom = _frame(mark.box_cxcywh, canvas, view, image_wh)
        if mark.meant:  # A dark edge, to be seen on bright metal too.
            cv2.rectangle(canvas, (left - 1, top - 1), (right + 1, bottom + 1), (0, 0, 0), 1)
        cv2.rectangle(canvas, (left, top), (right, bottom), colour, 2 if mark.meant else 1)


def _frame(box_cxcywh: CxCyWh, canvas: Image, view: Rectangle, image_wh: tuple[int, int]) -> Rectangle:
    """Where a frame lies on the canvas: around the box, within the canvas, not smaller than can be seen."""
    sides: list[tuple[int, int]] = []
    for axis in (0, 1):
        size = canvas.shape[1 - axis]
        scale = size / (view[axis + 2] - view[axis])
        centre = (box_cxcywh[axis] * image_wh[axis] - view[axis]) * scale
        half = max(box_cxcywh[axis + 2] * image_wh[axis] * scale, SMALLEST_MARK_PX) / 2 + 1
        sides.append((max(1, round(centre - half)), min(size - 2, round(centre + half))))
    return sides[0][0], sides[1][0], sides[0][1], sides[1][1]


def _jpeg(image: Image) -> bytes:
    _, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    return data.tobytes()


def data_uri(jpeg: bytes) -> str:
    """A picture as text that a page carries within itself."""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")
