"""Label Studio exports, JSON and JSON-MIN: a list of tasks, regions in percent of the picture.

Rectangles turn around their top left corner, ellipses around their centre, both in degrees. An annotation that its
author cancelled says nothing; one without regions declares the picture to show nothing. Uploaded pictures carry eight
hexadecimal digits before their own name. Of several annotators' work the one marked as ground truth counts, else the
newest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from data_contracts.dataset import IMAGE_SUFFIXES
from tasks.importers.brush import brush_extent
from tasks.importers.documents import DocumentError, add_unreadable, parse_json, read_bytes
from tasks.importers.geometry import Extent, ellipse_extent, extent_of_points, turned_box
from tasks.importers.native import Findings, NativeDataset, NativePicture, Place, Shape, stated_size
from tasks.importers.source import SourceFolder, split_of

_UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-")
_GEOMETRY = frozenset({"x", "points", "rle"})
"""A region's value has one of these; choices, texts and ratings have none."""

Region = Mapping[str, Any]


def read(source: SourceFolder, _class_names: Sequence[str] | None, findings: Findings) -> NativeDataset:
    """The dataset in the Label Studio exports below the source."""
    pictures: list[NativePicture] = []
    for file in source.with_suffix(".json"):
        try:
            document = parse_json(read_bytes(source.root / file))
        except DocumentError as error:
            add_unreadable(findings, str(file), error, "a Label Studio export in JSON")
            continue
        tasks = document if isinstance(document, list) else [document]
        pictures += [
            picture
            for number, task in enumerate(tasks)
            if isinstance(task, dict) and (picture := _picture(source, file, task, number, findings)) is not None
        ]
    return NativeDataset(tuple(pictures), None)


def _picture(
    source: SourceFolder, file: PurePosixPath, task: Region, number: int, findings: Findings
) -> NativePicture | None:
    data = task.get("data")
    fields = data if isinstance(data, dict) else task
    written = _picture_name(fields)
    if written is None:
        return None
    place = Place(str(file), what=f"task {task.get('id', number + 1)}")
    path = _find(source, written, place, findings)
    regions = _regions(task, place, findings)
    if path is None:
        return None
    if regions is None:
        return NativePicture(path, split=split_of(path))
    shapes = tuple(shape for region in regions for shape in _shapes(region, regions, place, findings))
    _tell_choices(regions, place, findings)
    wh = next((wh for region in regions if (wh := _original_wh(region)) is not None), None)
    return NativePicture(path, shapes, place, split_of(path), wh, in_fractions=True)


def _tell_choices(regions: Sequence[Region], place: Place, findings: Findings) -> None:
    """A choice says something about a picture that has no place in it: no box comes of it."""
    values = [region.get("value") for region in regions]
    chosen = [value["choices"] for value in values if isinstance(value, dict) and "choices" in value]
    if chosen and len(chosen) == len(regions):
        findings.add(
            place, "tag", "notice", expected="boxes of what the picture shows",
            got=f"only the choice {chosen[0]!r:.80}",
            action="The picture counts as showing nothing; draw boxes if it shows a defect.",
        )  # fmt: skip


def _picture_name(fields: Region) -> str | None:
    """The path that a task names, without the server's address: the first text that ends like a picture."""
    texts = (value for value in fields.values() if isinstance(value, str))
    paths = (_path_of(text) for text in texts)
    return next((path for path in paths if PurePosixPath(path).suffix.lower() in IMAGE_SUFFIXES), None)


def _path_of(text: str) -> str:
    """The path in an address; a plain path stays as it is, whatever characters it has.

    >>> _path_of("/data/local-files/?d=set%2Fa.png"), _path_of("s3://bucket/b/a.png?v=1"), _path_of("a #1 100%.png")
    ('set/a.png', '/b/a.png', 'a #1 100%.png')
    """
    if "://" not in text and "?d=" not in text:
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return text
    return parse_qs(parts.query).get("d", [unquote(parts.path)])[0]


def _find(source: SourceFolder, written: str, place: Place, findings: Findings) -> PurePosixPath | None:
    home = PurePosixPath(place.file).parent
    plain = unquote(written)
    spellings = (written, plain, _UPLOAD_PREFIX.sub("", PurePosixPath(plain).name))
    known = next((name for name in spellings if source.candidates(name, home)), written)
    return source.find_picture(known, place, findings)


def _regions(task: Region, place: Place, findings: Findings) -> list[Region] | None:
    """The regions of the annotation that counts; None where nobody has finished one."""
    annotations = task.get("annotations", task.get("completions"))
    if annotations is None:  # JSON-MIN holds the regions themselves, under the name of the control.
        found = [value for value in task.values() if isinstance(value, list) and all(map(_is_region, value))]
        return [region for value in found for region in value] if found or "annotation_id" in task else None
    finished = [
        entry for entry in (annotations if isinstance(annotations, list) else []) if isinstance(entry, dict)
        and not entry.get("was_cancelled") and isinstance(entry.get("result"), list)
    ]  # fmt: skip
    if not finished:
        return None
    chosen = _chosen(finished)
    if len(finished) > 1:
        findings.add(
            place, "annotations", "warning", expected="one finished annotation", got=f"{len(finished)}",
            action=f"Annotation {chosen.get('id')} was taken; mark the right one as ground truth.",
        )  # fmt: skip
    return [region for region in chosen["result"] if isinstance(region, dict)]


def _is_region(value: object) -> bool:
    return isinstance(value, dict) and any(_is_labels(key) for key in value)


def _is_labels(key: str) -> bool:
    return key.endswith("labels")


def _chosen(annotations: Sequence[Region]) -> Region:
    truths = [entry for entry in annotations if entry.get("ground_truth")]
    return max(truths or annotations, key=_age)


def _age(annotation: Region) -> tuple[str, int]:
    number = annotation.get("id")
    return str(annotation.get("updated_at", "")), number if isinstance(number, int) else 0


def _original_wh(region: Region) -> tuple[int, int] | None:
    return stated_size(region.get("original_width"), region.get("original_height"))


def _shapes(region: Region, regions: Sequence[Region], place: Place, findings: Findings) -> Iterator[Shape]:
    """The shapes of one region: one per label, as a region may carry several."""
    value = region.get("value", region)
    place = Place(place.file, what=f"{place.what}, region {region['id']}" if "id" in region else place.what)
    if not isinstance(value, dict) or not _GEOMETRY & value.keys() or _is_repeated(region, value, regions):
        return
    try:
        names = _names(region, value, regions)
        extent = _extent(value, region)
    except ValueError as error:
        findings.add(
            place, "box", "error", expected="a labelled region in percent of the picture", got=str(error),
            action="Draw the region again; it was left out.",
        )  # fmt: skip
        return
    if extent is None:
        findings.add(
            place, "shape", "warning", expected="regions with an extent", got=f"{', '.join(names)} as a key point",
            action="It was left out; draw a box if it is a defect.",
        )  # fmt: skip
        return
    yield from (Shape(name, extent, place) for name in names)


def _is_repeated(region: Region, value: Region, regions: Sequence[Region]) -> bool:
    """Whether a plain shape is told again by the entry of the same region that has its labels."""
    if any(map(_is_labels, value)):
        return False
    twins = (other.get("value") for other in regions if other.get("id") == region.get("id") and other is not region)
    return any(isinstance(twin, dict) and _GEOMETRY & twin.keys() and any(map(_is_labels, twin)) for twin in twins)


def _names(region: Region, value: Region, regions: Sequence[Region]) -> tuple[str, ...]:
    """The labels of a region, its own or those of another entry with its id. Raises ValueError."""
    own = [names for key, names in value.items() if _is_labels(key) and isinstance(names, list)]
    if not own:
        twins = [other.get("value") for other in regions if "id" in region and other.get("id") == region["id"]]
        own = [
            names for twin in twins if isinstance(twin, dict)
            for key, names in twin.items() if _is_labels(key) and isinstance(names, list)
        ]  # fmt: skip
    names = tuple(dict.fromkeys(name for names in own for name in names if isinstance(name, str) and name.strip()))
    if not names:
        raise ValueError("a region without a label")
    return names


def _extent(value: Region, region: Region) -> Extent | None:
    """The box of a region in fractions of the picture; None for a key point. Raises ValueError."""
    wh = _original_wh(region)
    if region.get("image_rotation") or value.get("image_rotation"):
        raise ValueError("a region of a picture that was turned in the tool")
    if "rle" in value:
        return _brushed(value["rle"], wh)
    if "points" in value:
        points = value["points"]
        if not isinstance(points, list) or len(points) < 2 or not all(isinstance(point, list) for point in points):
            raise ValueError(f"points {points!r:.80}")
        return _scaled(extent_of_points(_pair(point) for point in points), (100, 100))
    degrees = _number(value.get("rotation", 0))
    if degrees and wh is None:
        raise ValueError("a turned region without original_width and original_height")
    width, height = wh or (1, 1)
    x, y = _number(value.get("x")) / 100 * width, _number(value.get("y")) / 100 * height
    if "radiusX" in value:
        radii = _number(value["radiusX"]) / 100 * width, _number(value.get("radiusY")) / 100 * height
        return _scaled(ellipse_extent((x, y), radii, degrees), (width, height))
    if "height" not in value:
        return None
    right, bottom = x + _number(value.get("width")) / 100 * width, y + _number(value["height"]) / 100 * height
    return _scaled(turned_box((x, y, right, bottom), degrees, pivot=(x, y)), (width, height))


def _brushed(runs: object, wh: tuple[int, int] | None) -> Extent:
    whole = isinstance(runs, list) and all(type(value) is int and 0 <= value < 256 for value in runs)
    if wh is None or not isinstance(runs, list) or not whole:
        raise ValueError("a brush mask that is no list of bytes, or without its picture's size")
    return _scaled(brush_extent(bytes(runs), wh), wh)


def _scaled(extent: Extent, wh: tuple[int, int]) -> Extent:
    left, top, right, bottom = extent
    return left / wh[0], top / wh[1], right / wh[0], bottom / wh[1]


def _pair(point: Sequence[object]) -> tuple[float, float]:
    if len(point) != 2:
        raise ValueError(f"a point {point!r:.40}")
    return _number(point[0]), _number(point[1])


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} where a number belongs")
    return float(value)
