"""Whatever stands in place of one value of an annotation file, the import says so in words and never breaks."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builders import encode, plate
from data_contracts.errors import PasslineError
from native_formats import Annotated, bring_in, cvat_xml, labelme_json, put, region, voc_xml

WH = (32, 24)
PICTURE = encode(plate(WH))
BOX = ("dent", (4.0, 5.0, 10.0, 12.0))
ODD_VALUES = (None, "", "../../a.png", -1, 3, 1e308, 10**40, True, [], [[None]], {"a": 1}, "\0")
COCO = {
    "images": [{"id": 1, "file_name": "a.png", "width": 32, "height": 24}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [4, 5, 6, 7], "iscrowd": 0},
        {"id": 2, "image_id": 1, "category_id": 1, "segmentation": [[4, 5, 10, 5, 10, 12]]},
        {"id": 3, "image_id": 1, "category_id": 1, "segmentation": {"size": [24, 32], "counts": "52203"}},
    ],
    "categories": [{"id": 1, "name": "dent", "supercategory": "none"}],
}
ROUND = {"type": "ellipselabels", "value": {"x": 50, "y": 50, "radiusX": 5, "radiusY": 5, "ellipselabels": ["dent"]}}
BRUSH = {
    "type": "brushlabels", "original_width": 32, "original_height": 24, "value": {"rle": [0, 0], "brushlabels": ["b"]}
}  # fmt: skip
OUTLINE = {"type": "polygonlabels", "value": {"points": [[1, 2], [9, 9]], "polygonlabels": ["dent"]}}
DOCUMENTS: dict[str, tuple[str, Any]] = {
    "coco": ("coco", COCO),
    "labelme": ("labelme", labelme_json(Annotated("a.png", WH, (BOX,)))),
    "labelstudio": (
        "labelstudio",
        [{"id": 1, "data": {"image": "a.png"}, "annotations": [
            {"id": 1, "result": [region(*BOX, WH), ROUND, OUTLINE, BRUSH]}]}],
    ),
    "labelstudio, JSON-MIN": ("labelstudio", [{"id": 1, "image": "a.png", "label": [region(*BOX, WH)["value"]]}]),
}  # fmt: skip


def _places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value of a document, itself first."""
    yield path
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield from _places(value, (*path, key))


def _with(document: Any, path: tuple[Any, ...], value: object) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(document)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def _import(folder: Path, source_format: str) -> None:
    try:
        imported = bring_in(folder, source_format)
    except PasslineError:
        return
    for line in (line for file in imported.folder.glob("labels/**/*.txt") for line in file.read_text().splitlines()):
        assert all(0 <= float(field) <= 1 for field in line.split()[1:]), line


@pytest.mark.parametrize("case", DOCUMENTS.values(), ids=DOCUMENTS)
def test_json(case: tuple[str, Any], tmp_path: Path) -> None:
    source_format, document = case
    for at, path in enumerate(_places(document)):
        for number, value in enumerate(ODD_VALUES):
            folder = put(tmp_path / f"{at}-{number}", {"a.png": PICTURE, "x.json": _with(document, path, value)})
            _import(folder, source_format)


XML = {
    "voc": ("voc", voc_xml("a.png", WH, [BOX])),
    "cvat": ("cvat", cvat_xml(["dent"], (
        '<image name="a.png" width="32" height="24"><box label="dent" xtl="1" ytl="2" xbr="3" ybr="4" rotation="5"/>'
        '<polygon label="dent" points="1,2;3,4;5,6"/><ellipse label="dent" cx="9" cy="9" rx="2" ry="3"/></image>'
        '<track label="dent"><box frame="0" xtl="1" ytl="2" xbr="3" ybr="4"/></track>'))),
}  # fmt: skip


@pytest.mark.parametrize("case", XML.values(), ids=XML)
def test_xml(case: tuple[str, str], tmp_path: Path) -> None:
    source_format, text = case
    values = list(re.finditer(r'(?<=")[^"<>]+(?=")|(?<=>)[^"<>\n]+(?=<)', text))
    for at, found in enumerate(values):
        for number, value in enumerate(("", "x", "../../a.png", "-1", "1e999", "nan", "9" * 5000, "1,2")):
            changed = text[: found.start()] + value + text[found.end() :]
            folder = put(tmp_path / f"{at}-{number}", {"a.png": PICTURE, "x.xml": changed})
            _import(folder, source_format)
