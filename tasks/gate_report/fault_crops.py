"""A part of a picture around a fault. True boxes are dashed and found ones solid: to be told apart without colour."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from serving.images import Image
from tasks.gate_report.faults import Fault

CROP_PX = 232
"""Side of a crop on the page."""
ROOM = 2.4
"""A crop shows this many times the longer side of what it is about."""
LEAST_PX = 64
"""Fewest pixels of the picture that a crop shows each way."""
DASH_PX, GAP_PX = 9, 7
LINE_PX = 2
JPEG_QUALITY = 80
TRUE_INK, FOUND_INK, EDGE = (255, 255, 255), (255, 176, 0), (0, 0, 0)

Rectangle = tuple[int, int, int, int]


def view_of(boxes_xyxy_px: npt.NDArray[np.float32], image_wh: tuple[int, int]) -> Rectangle:
    """The square around all the boxes, as far as the picture goes: left, top, right, bottom in pixels.

    >>> view_of(np.array([[100, 100, 140, 120]], np.float32), (640, 480))
    (72, 62, 168, 158)
    >>> view_of(np.array([[0, 0, 10, 10]], np.float32), (50, 40))
    (0, 0, 50, 40)
    """
    left, top = boxes_xyxy_px[:, :2].min(axis=0)
    right, bottom = boxes_xyxy_px[:, 2:].max(axis=0)
    wished = max(LEAST_PX, round(ROOM * float(max(right - left, bottom - top))))
    sides = [min(wished, size) for size in image_wh]
    starts = [
        int(min(max(0, round(float(centre) - side / 2)), size - side))
        for centre, side, size in zip(((left + right) / 2, (top + bottom) / 2), sides, image_wh, strict=True)
    ]
    return starts[0], starts[1], starts[0] + sides[0], starts[1] + sides[1]


def fault_crop(image: Image, fault: Fault) -> bytes:
    """JPEG of the fault: RGB uint8 (height, width, 3) in."""
    boxes = np.concatenate([fault.true_boxes, fault.found_boxes])
    view = view_of(boxes, (image.shape[1], image.shape[0]))
    part = image[view[1] : view[3], view[0] : view[2]]
    scale = CROP_PX / max(part.shape[:2])
    wh = max(1, round(part.shape[1] * scale)), max(1, round(part.shape[0] * scale))
    way = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    canvas = np.ascontiguousarray(cv2.resize(part, wh, interpolation=way), dtype=np.uint8)
    for box in fault.found_boxes:
        _solid(canvas, _on_canvas(box, view, scale, wh))
    for box in fault.true_boxes:
        _dashed(canvas, _on_canvas(box, view, scale, wh))
    _, data = cv2.imencode(".jpg", canvas[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    return data.tobytes()


def _on_canvas(box: npt.NDArray[np.float32], view: Rectangle, scale: float, wh: tuple[int, int]) -> Rectangle:
    left, top, right, bottom = (
        int(np.clip(round((float(side) - view[axis % 2]) * scale), 1, wh[axis % 2] - 2))
        for axis, side in enumerate(box)
    )
    return left, top, right, bottom


def _solid(canvas: Image, box: Rectangle) -> None:
    left, top, right, bottom = box
    for ink, thickness in ((EDGE, LINE_PX + 2), (FOUND_INK, LINE_PX)):
        cv2.rectangle(canvas, (left, top), (right, bottom), ink, thickness)


def _dashed(canvas: Image, box: Rectangle) -> None:
    left, top, right, bottom = box
    for ink, thickness in ((EDGE, LINE_PX + 2), (TRUE_INK, LINE_PX)):
        for start in range(left, right + 1, DASH_PX + GAP_PX):
            stop = min(right, start + DASH_PX)
            for y in (top, bottom):
                cv2.line(canvas, (start, y), (stop, y), ink, thickness)
        for start in range(top, bottom + 1, DASH_PX + GAP_PX):
            stop = min(bottom, start + DASH_PX)
            for x in (left, right):
                cv2.line(canvas, (x, start), (x, stop), ink, thickness)
