"""From the shapes of a picture to its label rows, in fractions of the picture as it is displayed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from data_contracts.errors import ImageError, Problem
from data_contracts.labels import LabelBox
from serving.image_headers import read_header
from serving.images import ImageLimits, decode_image
from tasks.importers.geometry import Extent
from tasks.importers.native import Findings, NativePicture, Place, Shape
from tasks.validation.expectations import Severity

LIMITS = ImageLimits(max_bytes=2**30, max_pixels=2**28)
OVER_EDGE_PX = 1.0
"""A box this far over the edge is clipped without a word: tools count pixels from 1, or include the last one."""

_READ_SO = "Its boxes were read as lying on the displayed picture; check them."
_TURNING = (b"Exif", b"eXIf", b"EXIF", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""Bytes of files that may carry an orientation; all others are displayed as they are stored."""


@dataclass(frozen=True)
class PictureSize:
    """Width and height in pixels, as displayed and as stored: EXIF may turn a picture by 90 degrees."""

    displayed_wh: tuple[int, int]
    stored_wh: tuple[int, int]


def picture_size(data: bytes) -> PictureSize:
    """The size of a picture file. Only a picture that EXIF may turn is decoded. Raises ImageError."""
    header = read_header(data)
    if header is not None and header.wh is not None and not any(mark in data for mark in _TURNING):
        return PictureSize(header.wh, header.wh)
    height, width = decode_image(data, LIMITS).shape[:2]
    return PictureSize((width, height), header.wh if header is not None and header.wh is not None else (width, height))


def label_boxes(
    picture: NativePicture, data: bytes, class_ids: Mapping[str, int], findings: Findings
) -> list[tuple[LabelBox, Place]]:
    """The rows of one picture in their order, each with its place in the source. `data` is the picture file."""
    if not picture.shapes:
        return []
    wh = _unit(picture, data, findings)
    if wh is None:
        return []
    rows: dict[tuple[object, ...], tuple[LabelBox, Place]] = {}
    for shape in picture.shapes:
        extent = _inside(shape, wh, 0.001 if picture.in_fractions else OVER_EDGE_PX, findings)
        if extent is None:
            continue
        box = LabelBox(len(rows) + 1, class_ids[shape.class_name], _fractions(extent, wh))
        key = (box.class_id, *box.box_cxcywh)
        if key in rows:
            findings.add(
                shape.place, "box_twice", "warning", expected="every box once", got="a box that stands there already",
                action="It was taken once; remove the copy.",
            )  # fmt: skip
            continue
        rows[key] = (box, shape.place)
    return list(rows.values())


def _unit(picture: NativePicture, data: bytes, findings: Findings) -> tuple[float, float] | None:
    """What the shapes are relative to: 1 for fractions, else the displayed size, whatever the annotation says."""
    if picture.in_fractions and picture.stated_wh is None:
        return 1.0, 1.0
    wh = _displayed(picture, data, findings)
    return (1.0, 1.0) if picture.in_fractions else wh


def _displayed(picture: NativePicture, data: bytes, findings: Findings) -> tuple[float, float] | None:
    place = picture.listed_in or Place(str(picture.path))
    try:
        size = picture_size(data)
    except ImageError as error:
        if picture.stated_wh is not None:  # The picture's own fault is validation's to tell.
            return picture.stated_wh
        problem = error.problems[0]
        got = problem.got if isinstance(problem, Problem) else str(problem)
        findings.add(
            place, "picture", "error", expected=f"the size of {picture.path}", got=got,
            action="Replace the picture; its boxes were left out.",
        )  # fmt: skip
        return None
    stated_wh = picture.stated_wh
    if stated_wh is not None and stated_wh != size.displayed_wh:
        if not picture.in_fractions:
            _tell_size(picture, stated_wh, size, place, findings)
        elif not _same_shape(stated_wh, size.displayed_wh):
            _add_size(picture, size, place, "warning", f"{stated_wh[0]} x {stated_wh[1]}", _READ_SO, findings)
    return size.displayed_wh


def _tell_size(
    picture: NativePicture, stated_wh: tuple[int, int], size: PictureSize, place: Place, findings: Findings
) -> None:
    displayed, turned = size.displayed_wh, size.stored_wh != size.displayed_wh and stated_wh == size.stored_wh
    fits = all(_over_edge(shape.extent, displayed) <= OVER_EDGE_PX for shape in picture.shapes)
    got = f"{stated_wh[0]} x {stated_wh[1]}"
    if turned:
        got += ", its size before EXIF turns it"
    scaled = not turned and min(stated_wh) > 0 and _same_shape(stated_wh, displayed)
    wrong = scaled or not fits
    action = _READ_SO
    if wrong:
        why = (
            "the picture was scaled after it was annotated" if scaled else "the boxes do not fit the displayed picture"
        )
        action = f"It looks as if {why}: put the annotated picture there, or correct the annotation."
    _add_size(picture, size, place, "error" if wrong else "warning", got, action, findings)


def _add_size(
    picture: NativePicture,
    size: PictureSize,
    place: Place,
    severity: Severity,
    got: str,
    action: str,
    findings: Findings,
) -> None:
    expected = f"the size of {picture.path} as displayed, {_size(size.displayed_wh)}"
    findings.add(place, "picture_size", severity, expected=expected, got=got, action=action)


def _same_shape(one_wh: tuple[int, int], other_wh: tuple[int, int]) -> bool:
    """Whether one size is the other one scaled, within the rounding of a pixel.

    >>> _same_shape((1000, 667), (500, 333)), _same_shape((640, 480), (480, 640))
    (True, False)
    """
    scale = one_wh[0] / other_wh[0]
    return abs(one_wh[1] / scale - other_wh[1]) <= max(1.0, 1.0 / scale)


def _over_edge(extent: Extent, wh: tuple[float, float]) -> float:
    return max(0.0, -extent[0], -extent[1], extent[2] - wh[0], extent[3] - wh[1])


def _inside(shape: Shape, wh: tuple[float, float], tolerance: float, findings: Findings) -> Extent | None:
    """The part of a shape inside the picture; None, with a finding, where nothing is left."""
    left, top, right, bottom = shape.extent
    if not all(map(math.isfinite, shape.extent)):
        _add_box(shape, "box", "error", "finite numbers", findings)
        return None
    if right < left or bottom < top:
        _add_box(shape, "box_size", "error", "left before right, and top before bottom", findings)
        return None
    if right == left or bottom == top:
        _add_box(shape, "box_zero", "warning", "a width and a height over 0", findings)
        return None
    clipped = (max(left, 0.0), max(top, 0.0), min(right, wh[0]), min(bottom, wh[1]))
    if clipped[2] <= clipped[0] or clipped[3] <= clipped[1]:
        _add_box(shape, "box_outside", "error", f"a box inside the picture, {_size(wh)}", findings)
        return None
    if _over_edge(shape.extent, wh) > tolerance:
        findings.add(
            shape.place, "box_clipped", "warning", expected=f"a box inside the picture, {_size(wh)}",
            got=_words(shape), action="It was cut at the edge; check that it belongs to this picture.",
        )  # fmt: skip
    return clipped


def _add_box(shape: Shape, rule: str, severity: Severity, expected: str, findings: Findings) -> None:
    findings.add(
        shape.place, rule, severity, expected=expected, got=_words(shape),
        action="Correct or remove it in the source; it was left out.",
    )  # fmt: skip


def _size(wh: tuple[float, float]) -> str:
    return "0 to 1 each way" if wh == (1.0, 1.0) else f"{wh[0]:g} x {wh[1]:g}"


def _words(shape: Shape) -> str:
    left, top, right, bottom = shape.extent
    return f"{shape.class_name} from {left:g}, {top:g} to {right:g}, {bottom:g}"


def _fractions(extent: Extent, wh: tuple[float, float]) -> tuple[float, float, float, float]:
    """Centre and size as fractions, to the digits that label files carry.

    >>> _fractions((10, 20, 30, 60), (100, 200))
    (0.2, 0.2, 0.2, 0.2)
    """
    left, top, right, bottom = extent
    return (
        round((left + right) / 2 / wh[0], 9), round((top + bottom) / 2 / wh[1], 9),
        round((right - left) / wh[0], 9), round((bottom - top) / wh[1], 9),
    )  # fmt: skip
