"""CVAT XML 1.1, for images and for video: shapes in pixels, turned ones in degrees around their centres.

The class list is that of <meta>. An <image> without shapes declares its picture to show nothing. Of a video's tracks
the frames count where the object is not outside; their pictures are found by frame number, as CVAT names them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from tasks.importers.documents import DocumentError, XmlNode, add_unreadable, parse_xml, read_bytes
from tasks.importers.geometry import Extent, ellipse_extent, extent_of_points, turned_box
from tasks.importers.native import Findings, NativeDataset, NativePicture, Place, Shape
from tasks.importers.source import SourceFolder, split_of, split_word

_SHAPES = frozenset({"box", "polygon", "polyline", "ellipse", "mask"})
_NO_BOXES = frozenset({"points", "cuboid", "skeleton"})
_DIGITS = 10
"""A number with more of them is none that a picture or a video has."""
_FRAME_NAME = "frame_{:06d}"


def read(source: SourceFolder, _class_names: Sequence[str] | None, findings: Findings) -> NativeDataset:
    """The dataset in the CVAT files below the source."""
    pictures: list[NativePicture] = []
    names: dict[str, None] = {}
    for file in source.with_suffix(".xml"):
        try:
            root = parse_xml(read_bytes(source.root / file))
        except DocumentError as error:
            add_unreadable(findings, str(file), error, "CVAT annotations in XML")
            continue
        if root.tag == "annotations":
            names.update(dict.fromkeys(_labels(root)))
            pictures += _images(source, file, root, findings)
            pictures += _frames(source, file, root, findings)
    used = {shape.class_name for picture in pictures for shape in picture.shapes}
    return NativeDataset(tuple(pictures), (*names, *sorted(used - set(names))) if names else None)


def _labels(root: XmlNode) -> Iterator[str]:
    """The names of the labels that <meta> declares, in order; those of a skeleton's parts are no classes."""
    for meta in root.all("meta"):
        for holder in meta.all("task", "job", "project"):
            for labels in holder.all("labels"):
                yield from (label.value("name") for label in labels.all("label") if not label.value("parent"))


def _images(source: SourceFolder, file: PurePosixPath, root: XmlNode, findings: Findings) -> Iterator[NativePicture]:
    for image in root.all("image"):
        place = Place(str(file), image.line)
        path = source.find_picture(image.attributes.get("name", ""), place, findings)
        if path is None:
            continue
        _tell_tags(image, place, findings)
        found = (_shape(node, node.attributes.get("label", ""), str(file), findings) for node in image.children)
        shapes = tuple(shape for shape in found if shape is not None)
        split = split_word(image.attributes.get("subset", "")) or split_of(path) or split_of(file)
        yield NativePicture(path, shapes, place, split, _stated_wh(image))


def _tell_tags(image: XmlNode, place: Place, findings: Findings) -> None:
    """A tag says something about a picture that has no place in it: no box comes of it."""
    tags = [tag.attributes.get("label", "") for tag in image.all("tag")]
    if tags and not any(node.tag in _SHAPES for node in image.children):
        findings.add(
            place, "tag", "notice", expected="boxes of what the picture shows", got=f"only the tag {', '.join(tags)}",
            action="The picture counts as showing nothing; draw boxes if it shows a defect.",
        )  # fmt: skip


def _stated_wh(image: XmlNode) -> tuple[int, int] | None:
    texts = image.attributes.get("width", ""), image.attributes.get("height", "")
    return (
        (int(texts[0]), int(texts[1]))
        if all(text.isdecimal() and len(text) < _DIGITS and int(text) > 0 for text in texts)
        else None
    )


def _frames(source: SourceFolder, file: PurePosixPath, root: XmlNode, findings: Findings) -> Iterator[NativePicture]:
    """The frames of a video that show an object."""
    nodes: dict[str, list[tuple[XmlNode, str]]] = {}
    for track in root.all("track"):
        for node in track.children:
            if node.attributes.get("outside") != "1":
                entry = (node, track.attributes.get("label", ""))
                nodes.setdefault(node.attributes.get("frame", ""), []).append(entry)
    for frame, shown in nodes.items():
        place = Place(str(file), shown[0][0].line, f"frame {frame}")
        name = _FRAME_NAME.format(int(frame)) if frame.isdecimal() and len(frame) < _DIGITS else frame
        path = source.find_picture(name, place, findings)
        if path is not None:
            found = (_shape(node, label, str(file), findings) for node, label in shown)
            shapes = tuple(shape for shape in found if shape is not None)
            yield NativePicture(path, shapes, place, split_of(path) or split_of(file))


def _shape(node: XmlNode, label: str, file: str, findings: Findings) -> Shape | None:
    place = Place(file, node.line)
    if node.tag in _NO_BOXES:
        findings.add(
            place, "shape", "warning", expected="shapes with an extent", got=f"{label} as {node.tag}",
            action="It was left out; draw a box if it is a defect.",
        )  # fmt: skip
    if node.tag not in _SHAPES:
        return None
    if node.attributes.get("outside") == "1":
        return None
    if not label.strip():
        findings.add(
            place, "class_name", "error", expected="a label", got="none",
            action="Name the class; the shape was left out.",
        )  # fmt: skip
        return None
    try:
        return Shape(label, _extent(node), place)
    except (ValueError, OverflowError) as error:
        findings.add(
            place, "box", "error", expected=f"the numbers of a {node.tag}", got=f"{label} with {error}",
            action="Correct the shape; it was left out.",
        )  # fmt: skip
        return None


def _extent(node: XmlNode) -> Extent:
    """The box of a shape. Raises ValueError."""
    degrees = _numbers(node, "rotation")[0] if "rotation" in node.attributes else 0.0
    if node.tag == "box":
        left, top, right, bottom = _numbers(node, "xtl", "ytl", "xbr", "ybr")
        return turned_box((left, top, right, bottom), degrees)
    if node.tag == "ellipse":
        x, y, radius_x, radius_y = _numbers(node, "cx", "cy", "rx", "ry")
        return ellipse_extent((x, y), (radius_x, radius_y), degrees)
    if node.tag == "mask":
        left, top, width, height = _numbers(node, "left", "top", "width", "height")
        return left, top, left + width, top + height
    return turned_box(extent_of_points(_points(node)), degrees)


def _points(node: XmlNode) -> list[tuple[float, float]]:
    text = node.attributes.get("points", "")
    pairs = [pair.split(",") for pair in text.split(";") if pair.strip()]
    try:
        points = [(float(x), float(y)) for x, y in pairs]
    except ValueError:
        raise ValueError(f"points {text!r:.80}") from None
    if not points or not all(math.isfinite(value) for point in points for value in point):
        raise ValueError(f"points {text!r:.80}")
    return points


def _numbers(node: XmlNode, *names: str) -> list[float]:
    values = []
    for name in names:
        text = node.attributes.get(name, "")
        try:
            values.append(float(text))
        except ValueError:
            raise ValueError(f"{name} {text!r:.40}") from None
        if not math.isfinite(values[-1]):
            raise ValueError(f"{name} {text}")
    return values
