"""Pascal VOC: one XML file per picture, corners in pixels, taken as the edges of the box as they stand.

A picture belongs to the XML file of its own stem; only without one does <filename> count, which often lacks its suffix
or is left over from a copy. An XML file without objects declares its picture to show nothing. ImageSets/Main/*.txt
gives the splits where it is there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePosixPath

from data_contracts.dataset import Split
from tasks.importers.documents import DocumentError, XmlNode, add_unreadable, parse_xml, read_bytes
from tasks.importers.geometry import Extent, extent_of_points, turned_box
from tasks.importers.native import Findings, NativeDataset, NativePicture, Place, Shape
from tasks.importers.source import SourceFolder, split_from_list, split_of

_CORNERS = ("xmin", "ymin", "xmax", "ymax")


def read(source: SourceFolder, _class_names: Sequence[str] | None, findings: Findings) -> NativeDataset:
    """The dataset in the XML files below the source."""
    splits = _listed_splits(source)
    pictures = []
    difficult = 0
    for file in source.with_suffix(".xml"):
        try:
            root = parse_xml(read_bytes(source.root / file))
        except DocumentError as error:
            add_unreadable(findings, str(file), error, "a Pascal VOC annotation in XML")
            continue
        if root.tag != "annotation":
            continue
        path = _picture_of(source, file, root, findings)
        if path is None:
            continue
        split = splits.get(file.stem) or splits.get(path.stem) or split_of(path) or split_of(file)
        shapes = tuple(shape for node in root.all("object") if (shape := _shape(node, str(file), findings)) is not None)
        difficult += sum(node.value("difficult") == "1" for node in root.all("object"))
        pictures.append(NativePicture(path, shapes, Place(str(file)), split, _stated_wh(root)))
    if difficult:
        findings.add(
            Place("."), "difficult", "notice", expected="objects to learn from", got=f"{difficult} marked as difficult",
            action="They were imported like all others; remove them from the source if nobody could judge them.",
        )  # fmt: skip
    return NativeDataset(tuple(pictures), None)


def _listed_splits(source: SourceFolder) -> dict[str, Split]:
    """The split by picture stem, from ImageSets/Main/train.txt and the like; lists per class are no splits."""
    splits: dict[str, Split] = {}
    lists = [file for file in source.with_suffix(".txt") if "ImageSets" in file.parts]
    for file in sorted(lists, key=lambda file: file.stem != "trainval"):  # trainval first: train and val say it better.
        split = split_from_list(file.name)
        if split is None:
            continue
        text = (source.root / file).read_text("utf-8-sig", errors="replace")
        splits.update({PurePosixPath(line.split()[0]).name: split for line in text.splitlines() if line.split()})
    return splits


def _picture_of(source: SourceFolder, file: PurePosixPath, root: XmlNode, findings: Findings) -> PurePosixPath | None:
    written = root.value("filename")
    own = source.candidates(file.stem, file.parent)
    named = source.candidates(written, file.parent) if written else []
    if len(own) == 1:
        if len(named) == 1 and named != own:
            node = root.first("filename")
            findings.add(
                Place(str(file), node.line if node else None), "filename", "warning",
                expected=f"{own[0].name}, the picture of the same name", got=f"{written}, another picture",
                action=f"The boxes were given to {own[0].name}; check them and correct <filename>.",
            )  # fmt: skip
        return own[0]
    home = PurePosixPath(root.value("folder").replace("\\", "/")).name
    name = f"{home}/{written}" if len(named) > 1 and home not in ("", "..") else written or file.stem
    return source.find_picture(name, Place(str(file)), findings)


def _stated_wh(root: XmlNode) -> tuple[int, int] | None:
    size = root.first("size")
    if size is None:
        return None
    try:
        width, height = int(float(size.value("width"))), int(float(size.value("height")))
    except (ValueError, OverflowError):
        return None
    return (width, height) if width > 0 and height > 0 else None


def _shape(node: XmlNode, file: str, findings: Findings) -> Shape | None:
    place = Place(file, node.line)
    name = node.value("name")
    if not name:
        findings.add(
            place, "class_name", "error", expected="a <name>", got="none",
            action="Name the class; the object was left out.",
        )  # fmt: skip
        return None
    try:
        extent = _extent(node)
    except ValueError as error:
        findings.add(
            place, "box", "error", expected="<xmin>, <ymin>, <xmax>, <ymax> as numbers", got=f"{name} with {error}",
            action="Correct the object; it was left out.",
        )  # fmt: skip
        return None
    if extent[0] > extent[2] or extent[1] > extent[3]:
        findings.add(
            place, "corners_swapped", "warning", expected="min before max", got=f"{name} {extent}",
            action="The corners were put in order; correct the object.",
        )  # fmt: skip
        extent = extent_of_points([extent[:2], extent[2:]])
    return Shape(name, extent, place)


def _extent(node: XmlNode) -> Extent:
    """The box of an object; its corners, a turned box (angle in radians) or an outline. Raises ValueError."""
    if sum(1 for _ in node.all("bndbox")) > 1:
        raise ValueError("several <bndbox>")
    if (box := node.first("bndbox")) is not None:
        left, top, right, bottom = (_number(box, corner) for corner in _CORNERS)
        return left, top, right, bottom
    if (box := node.first("robndbox")) is not None:
        x, y, width, height, angle = (_number(box, tag) for tag in ("cx", "cy", "w", "h", "angle"))
        return turned_box((x - width / 2, y - height / 2, x + width / 2, y + height / 2), math.degrees(angle))
    if (outline := node.first("polygon")) is not None:
        points = {child.tag: _number(outline, child.tag) for child in outline.children if child.tag != "pt"}
        pairs = [
            (points[f"x{tag[1:]}"], points[f"y{tag[1:]}"])
            for tag in points
            if tag[0] == "x" and f"y{tag[1:]}" in points
        ]
        pairs += [(_number(point, "x"), _number(point, "y")) for point in outline.all("pt")]
        if len(pairs) > 2:
            return extent_of_points(pairs)
    raise ValueError("no <bndbox>")


def _number(node: XmlNode, tag: str) -> float:
    text = node.value(tag)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"<{tag}> {text!r}" if text else f"no <{tag}>") from None
    if not math.isfinite(value):
        raise ValueError(f"<{tag}> {text}")
    return value
