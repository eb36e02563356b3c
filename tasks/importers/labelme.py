"""LabelMe and X-AnyLabeling JSON: one file per picture, shapes as points in pixels.

Rectangles have two corners or four, turned ones four; circles a centre and a point of the edge. Lines count by their
extent, points are no boxes. The picture is the one of `imagePath`, else the one of the file's own stem, else the one
that is embedded. A file without shapes declares its picture to show nothing.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from data_contracts.errors import DatasetError, Problem
from serving.image_headers import read_header
from tasks.importers.documents import DocumentError, add_unreadable, parse_json, read_bytes
from tasks.importers.geometry import Extent, Point, extent_of_points
from tasks.importers.native import Findings, NativeDataset, NativePicture, Place, Shape, stated_size
from tasks.importers.source import SourceFolder, split_of

_NO_BOXES = frozenset({"point", "points"})
_LEAST_POINTS = {"rectangle": 2, "rotation": 4, "circle": 2, "polygon": 3}
_SUFFIXES = {"jpeg": ".jpg", "png": ".png", "bmp": ".bmp", "webp": ".webp", "tiff": ".tif"}


def read(source: SourceFolder, _class_names: Sequence[str] | None, findings: Findings) -> NativeDataset:
    """The dataset in the JSON files below the source."""
    pictures = []
    for file in source.with_suffix(".json"):
        try:
            document = parse_json(read_bytes(source.root / file))
        except DocumentError as error:
            add_unreadable(findings, str(file), error, "a LabelMe annotation in JSON")
            continue
        if not isinstance(document, dict) or not isinstance(document.get("shapes"), list):
            continue
        picture = _picture(source, file, document, findings)
        if picture is not None:
            pictures.append(picture)
    return NativeDataset(tuple(pictures), None)


def _picture(
    source: SourceFolder, file: PurePosixPath, document: dict[str, Any], findings: Findings
) -> NativePicture | None:
    place = Place(str(file))
    written = document.get("imagePath")
    written = written if isinstance(written, str) and written.strip() else file.stem
    own, named = source.candidates(file.stem, file.parent), source.candidates(written, file.parent)
    embedded = None
    if len(own) == 1 and (len(named) != 1 or named == own):
        path: PurePosixPath | None = own[0]
    elif not named and (suffix := _embedded_suffix(document)):
        path, embedded = file.with_name(f"{file.stem}{suffix}"), file
    else:
        path = source.find_picture(written, place, findings)
    if path is None:
        return None
    shapes = [_shape(entry, number, str(file), findings) for number, entry in enumerate(document["shapes"], start=1)]
    kept = tuple(shape for shape in shapes if shape is not None)
    split = split_of(path) or split_of(file)
    return NativePicture(
        path,
        kept,
        place,
        split,
        stated_size(document.get("imageWidth"), document.get("imageHeight")),
        embedded_in=embedded,
    )


def _embedded_suffix(document: dict[str, Any]) -> str | None:
    """The suffix for the embedded picture's kind; None where there is none that we read."""
    try:
        header = read_header(_decoded(document))
    except ValueError:
        return None
    return None if header is None else _SUFFIXES[header.kind]


def embedded_picture(file: Path) -> bytes:
    """The bytes of the picture that a LabelMe file carries. Raises DatasetError."""
    try:
        return _decoded(parse_json(read_bytes(file)))
    except ValueError as error:
        problem = Problem(f"{file}, imageData", "a picture in base64", str(error), "Put the picture beside the file.")
        raise DatasetError(problem) from None


def _decoded(document: dict[str, Any]) -> bytes:
    data = document.get("imageData")
    if not isinstance(data, str) or not data:
        raise ValueError("nothing")
    try:
        return base64.b64decode(data.partition(",")[2] if data.startswith("data:") else data, validate=False)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _shape(entry: object, number: int, file: str, findings: Findings) -> Shape | None:
    place = Place(file, what=f"shape {number}")
    fields = entry if isinstance(entry, dict) else {}
    name, kind = fields.get("label"), str(fields.get("shape_type") or "polygon")
    if kind in _NO_BOXES:
        findings.add(
            place, "shape", "warning", expected="shapes with an extent", got=f"{name!s:.80} as {kind}",
            action="It was left out; draw a box if it is a defect.",
        )  # fmt: skip
        return None
    if not isinstance(name, str) or not name.strip():
        findings.add(
            place, "class_name", "error", expected="a label", got=repr(name)[:80],
            action="Name the class; the shape was left out.",
        )  # fmt: skip
        return None
    try:
        return Shape(name.strip(), _extent(kind, _points(fields.get("points"))), place)
    except ValueError as error:
        findings.add(
            place, "box", "error", expected=f"the points of a {kind:.40}", got=f"{name.strip()} with {error}",
            action="Draw the shape again; it was left out.",
        )  # fmt: skip
        return None


def _points(given: object) -> list[Point]:
    points = given if isinstance(given, list) else []
    if not points or not all(
        isinstance(point, list) and len(point) == 2 and all(map(_is_number, point)) for point in points
    ):
        raise ValueError(f"points {given!r:.80}")
    return [(float(x), float(y)) for x, y in points]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _extent(kind: str, points: list[Point]) -> Extent:
    """The box of a shape. Raises ValueError.

    >>> _extent("circle", [(10.0, 10.0), (13.0, 14.0)])
    (5.0, 5.0, 15.0, 15.0)
    """
    least = _LEAST_POINTS.get(kind, 2)
    if len(points) < least:
        raise ValueError(f"{len(points)} points")
    if kind == "circle":
        (x, y), radius = points[0], math.dist(points[0], points[1])
        return x - radius, y - radius, x + radius, y + radius
    return extent_of_points(points)
