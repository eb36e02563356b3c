"""A picture with its boxes drawn, for people: legible on 64 and on 4000 pixels.

Small pictures are enlarged in whole steps first, and the verdict stands on a strip above the picture, so that nothing
of the part is hidden behind it. Labels lie within the picture and never on each other: in a crowd the boxes of the
lowest scores go without, and the strip says how many. A class name with characters that the font lacks is shown as its
class id, not as question marks.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np

from data_contracts.detections import Detection, Verdict
from serving.images import Image
from serving.lettering import Colour, can_draw, draw_text, fit_text, line_height, text_width

SMALL_PX = 320
"""Pictures whose shorter side is below this are enlarged ..."""
LARGEST_PX = 4096
"""... while their longer side stays below this."""
MIN_FONT_PX, MAX_FONT_PX = 13, 96
FONT_SHARE = 0.025
"""Size of the letters as a share of the picture's size, the root of its area."""
LINES_OFF = 3
"""How many lines away from its box a label may stand where there is no room at it."""
JPEG_QUALITY = 92

Box = tuple[int, int, int, int]

VERDICT_COLOURS: dict[Verdict, Colour] = {Verdict.OK: (0, 128, 60), Verdict.NG: (200, 20, 30)}
# Distinct also with the common colour blindnesses, and from grey metal: the colours of Okabe and Ito without black.
_CLASS_COLOURS: tuple[Colour, ...] = (
    (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167),
)  # fmt: skip
_BLACK, _WHITE = (0, 0, 0), (255, 255, 255)


@dataclass(frozen=True)
class _Style:
    font_px: int
    line_px: int
    pad_px: int


def draw_detections(image_rgb: Image, records: Sequence[Detection], verdict: Verdict) -> Image:
    """RGB picture with boxes, labels and the verdict above; larger than the given one, which stays as it is."""
    factor = enlargement((image_rgb.shape[1], image_rgb.shape[0]))
    canvas = np.ascontiguousarray(np.repeat(np.repeat(image_rgb, factor, axis=0), factor, axis=1))
    wh = canvas.shape[1], canvas.shape[0]
    style = _style_for(wh)
    ranked = sorted(records, key=lambda record: record.score, reverse=True)
    placed = [(record, _scaled(record, factor, wh)) for record in ranked]
    for record, box in reversed(placed):  # the best box last, on top of the others
        _draw_box(canvas, box, class_colour(record.class_id), style.line_px)
    taken: list[Box] = []
    for record, box in placed:  # the best label first: it gets the best place
        taken += _draw_label(canvas, record, box, style, taken)
    return np.vstack([_banner(wh[0], _banner_text(verdict, len(records), len(taken)), verdict, style), canvas])


def encode_image(image_rgb: Image, kind: Literal["png", "jpeg"]) -> bytes:
    """Bytes of a picture file."""
    suffix, options = (".png", []) if kind == "png" else (".jpg", [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    written, data = cv2.imencode(suffix, cv2.cvtColor(image_rgb, cv2.COLOR_RGB2BGR), options)
    if not written:
        raise ValueError(f"a picture of shape {image_rgb.shape} cannot be written as {kind}")
    return bytes(data)


def enlargement(image_wh: tuple[int, int]) -> int:
    """How many times larger a picture is drawn; 1 from 320 pixels on.

    >>> enlargement((64, 64)), enlargement((640, 20)), enlargement((4000, 3000))
    (5, 6, 1)
    """
    shorter, longer = sorted(image_wh)
    return max(1, min(-(-SMALL_PX // shorter), LARGEST_PX // longer))


def class_colour(class_id: int) -> Colour:
    """A colour of its own for each class: seven chosen ones, then hues a golden angle apart."""
    if class_id < len(_CLASS_COLOURS):
        return _CLASS_COLOURS[class_id]
    step = class_id - len(_CLASS_COLOURS)
    red, green, blue = colorsys.hsv_to_rgb(step * 0.618034 % 1, 0.65 + 0.35 * (step % 2), 0.95 - 0.2 * (step % 3))
    return round(red * 255), round(green * 255), round(blue * 255)


def label_text(record: Detection) -> str:
    """Class name and score, or class id and score where the font lacks a letter of the name."""
    name = record.class_name if can_draw(record.class_name) else f"class {record.class_id}"
    return f"{name} {record.score:.2f}"


def _style_for(wh: tuple[int, int]) -> _Style:
    font_px = int(min(max(FONT_SHARE * (wh[0] * wh[1]) ** 0.5, MIN_FONT_PX), MAX_FONT_PX))
    return _Style(font_px, max(2, font_px // 7), max(2, font_px // 5))


def _scaled(record: Detection, factor: int, wh: tuple[int, int]) -> Box:
    """The box in pixels of the drawing, within it and at least one pixel in size; right and bottom included."""
    left, top, right, bottom = (round(side * factor) for side in record.box_xyxy_px)
    left, top = min(left, wh[0] - 1), min(top, wh[1] - 1)
    return left, top, max(left, min(right, wh[0]) - 1), max(top, min(bottom, wh[1]) - 1)


def _draw_box(canvas: Image, box: Box, colour: Colour, line_px: int) -> None:
    """A frame around the box, where it hides nothing of the defect, with a dark edge for bright pictures.

    At the picture's edge the frame moves inside, or it would not be seen.
    """
    height, width = canvas.shape[:2]
    edge = max(1, line_px // 2)
    left, top, right, bottom = box
    outer = (
        max(0, left - line_px),
        max(0, top - line_px),
        min(width - 1, right + line_px),
        min(height - 1, bottom + line_px),
    )
    for inset, ink, thickness in ((-edge, _BLACK, line_px + 2 * edge), (0, colour, line_px)):
        _frame(canvas, outer, inset, thickness, ink)


def _frame(canvas: Image, outer: Box, inset: int, thickness: int, ink: Colour) -> None:
    """Four filled bars inside `outer`, whose edges are included, moved inwards by `inset`."""
    height, width = canvas.shape[:2]
    left, top = max(0, outer[0] + inset), max(0, outer[1] + inset)
    right, bottom = min(width, outer[2] + 1 - inset), min(height, outer[3] + 1 - inset)
    canvas[top : top + thickness, left:right] = ink
    canvas[max(top, bottom - thickness) : bottom, left:right] = ink
    canvas[top:bottom, left : left + thickness] = ink
    canvas[top:bottom, max(left, right - thickness) : right] = ink


def _draw_label(canvas: Image, record: Detection, box: Box, style: _Style, taken: list[Box]) -> list[Box]:
    """Draw one label; the place that it took, none where it found no free one."""
    wh = canvas.shape[1], canvas.shape[0]
    text, font_px = fit_text(label_text(record), style.font_px, MIN_FONT_PX, wh[0] - 2 * style.pad_px)
    label_wh = text_width(text, font_px) + 2 * style.pad_px, line_height(font_px) + style.pad_px
    place = _free_place(box, label_wh, wh, style.line_px, taken)
    if place is None:
        return []
    colour = class_colour(record.class_id)
    canvas[place[1] : place[3], place[0] : place[2]] = colour
    origin = place[0] + style.pad_px, place[1] + style.pad_px // 2
    draw_text(canvas, origin, text, font_px, ink_on(colour))
    return [place]


def _free_place(box: Box, label_wh: tuple[int, int], wh: tuple[int, int], line_px: int, taken: list[Box]) -> Box | None:
    """Above the box, below it, inside it, or a few lines off: the first place that covers no earlier label.

    A place that also leaves the box free goes before one that does not: under it may lie the defect.
    """
    left, top, right, bottom = box
    above, below, line = top - line_px - label_wh[1], bottom + line_px + 1, label_wh[1]
    off = [start for lines in range(1, LINES_OFF + 1) for start in (above - lines * line, below + lines * line)]
    tops = (above, below, top, bottom - line, *off)
    lefts = (left - line_px, right + line_px + 1 - label_wh[0])
    places = [
        (x, y, x + label_wh[0], y + label_wh[1])
        for y in (_clamp(top, wh[1] - label_wh[1]) for top in tops)
        for x in (_clamp(left, wh[0] - label_wh[0]) for left in lefts)
    ]
    legible = [place for place in places if not any(_overlap(place, other) for other in taken)]
    return next((place for place in legible if not _overlap(place, box)), next(iter(legible), None))


def _clamp(start: int, last: int) -> int:
    return max(0, min(start, last))


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def ink_on(colour: Colour) -> Colour:
    """Black or white, whichever is read better on the colour."""
    red, green, blue = colour
    return _BLACK if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else _WHITE


def _banner_text(verdict: Verdict, boxes: int, labels: int) -> str:
    if not boxes:
        return str(verdict)
    words = f"{verdict}  {boxes} {'box' if boxes == 1 else 'boxes'}"
    return words if labels == boxes else f"{words}, {boxes - labels} without label"


def _banner(width: int, text: str, verdict: Verdict, style: _Style) -> Image:
    text, font_px = fit_text(text, style.font_px, MIN_FONT_PX, width - 2 * style.pad_px)
    strip = np.full((line_height(font_px) + 2 * style.pad_px, width, 3), VERDICT_COLOURS[verdict], np.uint8)
    draw_text(strip, (style.pad_px * 2, style.pad_px), text, font_px, _WHITE)
    return strip
