"""COCO JSON: one file per split or for all, boxes as left, top, width, height in pixels.

Class ids follow the category ids in their order; gaps close. Roboflow's phantom category, which only groups the others
and has no annotation, is no class. A box that is missing is taken from the outline or the mask. Crowd regions stand for
many objects and are no boxes. A listed picture without annotations is declared to show nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from data_contracts.errors import DatasetError, Problem
from tasks.importers.documents import DocumentError, add_unreadable, parse_json, read_bytes
from tasks.importers.geometry import Extent, decode_counts, extent_of_points, runs_extent
from tasks.importers.native import Findings, NativeDataset, NativePicture, Place, Shape, class_of, stated_size
from tasks.importers.source import SourceFolder, split_of

_LISTS = ("images", "annotations")
_DIGITS = 19
_PHANTOM_ID = 0
"""Roboflow's category for the project as a whole; the others name it as their supercategory."""


def read(source: SourceFolder, _class_names: Sequence[str] | None, findings: Findings) -> NativeDataset:
    """The dataset in the COCO files below the source."""
    pictures: list[NativePicture] = []
    documents: list[tuple[PurePosixPath, dict[str, Any]]] = []
    for file in source.with_suffix(".json"):
        try:
            document = parse_json(read_bytes(source.root / file))
        except DocumentError as error:
            add_unreadable(findings, str(file), error, "COCO annotations in JSON")
            continue
        if isinstance(document, dict) and all(isinstance(document.get(name), list) for name in _LISTS):
            documents.append((file, document))
        elif isinstance(document, dict) and "images" in document:
            add_unreadable(findings, str(file), DocumentError("another shape"), "lists named images and annotations")
    entries = [entry for _, document in documents for entry in document["annotations"]]
    used = Counter(_number(_field(entry, "category_id")) for entry in entries)
    names_by_file = {file: _category_names(file, document, used, findings) for file, document in documents}
    for file, document in documents:
        pictures += _FileReader(source, file, document, names_by_file[file], findings).pictures()
    return NativeDataset(tuple(pictures), _class_list(names_by_file, findings))


def _field(entry: object, name: str) -> Any:
    return entry.get(name) if isinstance(entry, dict) else None


def _category_names(
    file: PurePosixPath, document: Mapping[str, Any], used: Mapping[object, int], findings: Findings
) -> dict[int, str]:
    """The classes of one file by category id, in id order, without the phantom. Raises DatasetError."""
    given = [
        (_number(_field(entry, "id")), _field(entry, "name"), _field(entry, "supercategory"))
        for entry in _categories(document)
    ]
    wrong = [entry for entry in given if not (type(entry[0]) is int and isinstance(entry[1], str) and entry[1].strip())]
    ids = Counter(entry[0] for entry in given)
    wrong += [entry for entry in given if ids[entry[0]] > 1 and entry not in wrong]
    if wrong:
        got = ", ".join(f"id {number!r} name {name!r}" for number, name, _ in wrong[:5])
        action = "Give every category a whole number of its own as id, and a name."
        raise DatasetError(Problem(f"{file}, categories", "distinct whole numbers with names", got, action))
    names = {number: name for number, name, _ in sorted(given, key=lambda entry: int(entry[0]))}
    parents = [parent for number, _, parent in given if number != _PHANTOM_ID]
    if _PHANTOM_ID in names and names[_PHANTOM_ID] in parents and not used.get(_PHANTOM_ID):
        findings.add(
            Place(str(file)), "phantom_category", "notice", expected="categories that are classes",
            got=f"{names.pop(_PHANTOM_ID)!r}, which groups the others and has no annotation",
            action="It became no class.",
        )  # fmt: skip
    return names


def _categories(document: Mapping[str, Any]) -> list[object]:
    categories = document.get("categories")
    return categories if isinstance(categories, list) else []


def _class_list(names_by_file: Mapping[PurePosixPath, Mapping[int, str]], findings: Findings) -> tuple[str, ...]:
    """The classes in category order; what one file lacks another may have. Raises DatasetError for contradictions."""
    merged: dict[int, str] = {}
    problems = []
    for file, names in names_by_file.items():
        for number, name in names.items():
            if merged.setdefault(number, name) != name:
                got = f"{name!r} for category {number}"
                action = "Export all splits from one version of the data set."
                problems.append(Problem(str(file), f"{merged[number]!r} as in the other file", got, action))
    if problems:
        raise DatasetError(*problems)
    ordered = tuple(dict.fromkeys(merged[number] for number in sorted(merged)))
    if len(ordered) < len(merged):
        twice = ", ".join(name for name, count in Counter(merged.values()).items() if count > 1)
        findings.add(
            Place(str(next(iter(names_by_file)))), "category_twice", "warning", expected="one category per class",
            got=f"several named {twice}", action="They became one class; check that they mean the same.",
        )  # fmt: skip
    if names_by_file and sorted(merged) != list(range(len(merged))):
        numbers = ", ".join(f"{number} to {ordered.index(merged[number])}" for number in sorted(merged))
        findings.add(
            Place(str(next(iter(names_by_file)))), "category_ids", "notice", expected="ids from 0 without gaps",
            got=f"categories {', '.join(map(str, sorted(merged)))}",
            action=f"Names were kept, category ids became class ids: {numbers}.",
        )  # fmt: skip
    return ordered


class _FileReader:
    """Reads the pictures of one file."""

    def __init__(
        self, source: SourceFolder, file: PurePosixPath, document: Mapping[str, Any], names: dict[int, str],
        findings: Findings,
    ) -> None:  # fmt: skip
        self.source, self.file, self.names, self.findings = source, file, names, findings
        self.images: list[object] = document["images"]
        self.annotations: list[object] = document["annotations"]

    def pictures(self) -> list[NativePicture]:
        """The pictures of the file, with their shapes."""
        images = self._read_images()
        shapes: dict[object, list[Shape]] = {}
        for number, annotation in enumerate(self.annotations):
            place = self._place("annotation", annotation, number)
            if not isinstance(annotation, dict):
                self._error(place, "annotation", "an object", repr(annotation)[:80], "it was left out")
            elif (image_id := _number(annotation.get("image_id"))) not in images:
                got = f"image_id {annotation.get('image_id')!r}, which no image has"
                self._error(place, "image_id", "the id of an image of the file", got, "the box was left out")
            elif (shape := self._shape(annotation, place)) is not None:
                shapes.setdefault(image_id, []).append(shape)
        split = split_of(self.file)
        return [
            replace(picture, shapes=tuple(shapes.get(image_id, ())), split=split or split_of(picture.path))
            for image_id, picture in images.items()
            if picture is not None
        ]

    def _read_images(self) -> dict[object, NativePicture | None]:
        """The images by id, None for one without its picture. An id that stands twice is an error."""
        found: dict[object, NativePicture | None] = {}
        for number, image in enumerate(self.images):
            place = self._place("image", image, number)
            name = _field(image, "file_name")
            if not isinstance(image, dict) or not isinstance(name, str) or not name.strip() or "id" not in image:
                self._error(place, "image", "an id and a file_name", repr(image)[:80], "it was left out")
                continue
            path = self.source.find_picture(name, place, self.findings)
            picture = (
                None
                if path is None
                else NativePicture(path, (), place, stated_wh=stated_size(image.get("width"), image.get("height")))
            )
            earlier = found.setdefault(_number(image["id"]), picture)
            if earlier is not picture and (earlier is None or picture is None or earlier.path != picture.path):
                expected, got = "an id of its own for every image", f"{name} with the id of another image"
                self._error(place, "image_id_twice", expected, got, "all annotations of the id went to the first image")
        return found

    def _place(self, kind: str, entry: object, number: int) -> Place:
        known = _field(entry, "id")
        return Place(str(self.file), what=f"{kind} {known}" if known is not None else f"{kind} number {number + 1}")

    def _error(self, place: Place, rule: str, expected: str, got: str, outcome: str) -> None:
        action = f"Correct the file; {outcome}."
        self.findings.add(place, rule, "error", expected=expected, got=got, action=action)

    def _shape(self, annotation: dict[str, Any], place: Place) -> Shape | None:
        if annotation.get("iscrowd") in (1, True):
            self.findings.add(
                place, "crowd", "warning", expected="one object", got="a crowd region, iscrowd 1",
                action="It was left out; draw its objects one by one if they shall be learnt.",
            )  # fmt: skip
            return None
        category = _number(annotation.get("category_id"))
        if type(category) is not int:
            self._error(place, "category_id", "a whole number", repr(category)[:80], "the box was left out")
            return None
        name = class_of(self.names, category, place, self.findings)
        if name is None:
            return None
        try:
            return Shape(name, annotation_extent(annotation), place)
        except (ValueError, TypeError) as error:
            self._error(place, "box", "bbox as left, top, width, height", f"{name} with {error}", "it was left out")
            return None


def _number(value: object) -> Any:
    """An id: a whole number that is written as text is that number; what can be no id is compared by its text.

    >>> _number("7"), _number(7), _number("07"), _number([7])
    (7, 7, '07', '[7]')
    """
    if isinstance(value, str) and value.isdecimal() and len(value) < _DIGITS and str(int(value)) == value:
        return int(value)
    return value if isinstance(value, int | str) else repr(value)


def annotation_extent(annotation: Mapping[str, Any]) -> Extent:
    """The box of an annotation, or of its outline or mask where it has none. Raises ValueError.

    >>> annotation_extent({"bbox": [10, 20, 5, 2.5]})
    (10.0, 20.0, 15.0, 22.5)
    """
    box = annotation.get("bbox")
    if box:
        left, top, width, height = _numbers(box, 4)
        if width < 0 or height < 0:
            raise ValueError(f"a width of {width:g} and a height of {height:g}")
        return left, top, left + width, top + height
    outline = annotation.get("segmentation")
    if isinstance(outline, dict):
        return _mask_extent(outline)
    if not outline or not isinstance(outline, list):
        raise ValueError("neither bbox nor segmentation")
    rings = outline if isinstance(outline[0], list) else [outline]
    values = [number for ring in rings for number in _numbers(ring)]
    return extent_of_points(zip(values[0::2], values[1::2], strict=True))


def _mask_extent(mask: Mapping[str, Any]) -> Extent:
    counts, size = mask.get("counts"), mask.get("size")
    height, width = _numbers(size, 2)
    runs = decode_counts(counts) if isinstance(counts, str) else [int(number) for number in _numbers(counts)]
    if min(runs, default=0) < 0 or sum(runs) != height * width:
        raise ValueError("the runs of a mask that do not fill its size")
    extent = runs_extent(runs, int(height))
    if extent is None:
        raise ValueError("an empty mask")
    return extent


def _numbers(values: object, count: int | None = None) -> list[float]:
    numbers = values if isinstance(values, list) else []
    right = bool(numbers) and (len(numbers) == count if count else True)
    if not right or not all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers):
        raise ValueError(repr(values)[:80])
    if not all(math.isfinite(value) for value in numbers):
        raise ValueError(repr(values)[:80])
    return [float(value) for value in numbers]
