from __future__ import annotations

import base64
from pathlib import Path

import pytest

from builders import encode, plate
from data_contracts.errors import DatasetError
from native_formats import Annotated, boxes_of, bring_in, labelme_json, put, rules_of

WH = (100, 80)
PICTURE = encode(plate(WH))
BOX = ("dent", (10.0, 20.0, 30.0, 40.0))
CONTROL = Annotated("a.png", WH, (BOX,))


def shape(points: object, kind: object = "polygon", label: object = "dent") -> dict[str, object]:
    return {"label": label, "points": points, "shape_type": kind}


SHAPES = {
    "rectangle of two corners": (shape([[10, 20], [30, 40]], "rectangle"), [BOX], []),
    "rectangle drawn upwards": (shape([[30, 40], [10, 20]], "rectangle"), [BOX], []),
    "rectangle of four corners": (shape([[10, 20], [30, 20], [30, 40], [10, 40]], "rectangle"), [BOX], []),
    "rotation": (shape([[20, 20], [30, 30], [20, 40], [10, 30]], "rotation"), [BOX], []),
    "polygon": (shape([[10, 20], [30, 30], [15, 40]]), [BOX], []),
    "kind left out": (shape([[10, 20], [30, 30], [15, 40]], None), [BOX], []),
    "circle": (shape([[20, 30], [30, 30]], "circle"), [BOX], []),
    "line": (shape([[10, 20], [30, 40]], "line"), [BOX], []),
    "line strip": (shape([[10, 20], [30, 40], [12, 30]], "linestrip"), [BOX], []),
    "mask": ({**shape([[10, 20], [30, 40]], "mask"), "mask": "iVBORw0"}, [BOX], []),
    "upright line": (shape([[10, 20], [10, 40]], "line"), [], ["import_box_zero"]),
    "point": (shape([[10, 20]], "point"), [], ["import_shape"]),
    "circle of one point": (shape([[20, 30]], "circle"), [], ["import_box"]),
    "polygon of two points": (shape([[20, 30], [1, 1]]), [], ["import_box"]),
    "no points": (shape(None), [], ["import_box"]),
    "points in one list": (shape([1, 2, 3, 4], "rectangle"), [], ["import_box"]),
    "text in a point": (shape([["1", 2], [3, 4]], "rectangle"), [], ["import_box"]),
    "no label": (shape([[10, 20], [30, 40]], "rectangle", None), [], ["import_class_name"]),
    "no object": ("x", [], ["import_class_name"]),
}  # fmt: skip


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_what_shapes_become(case, tmp_path: Path) -> None:
    given, boxes, rules = case
    document = labelme_json(CONTROL, shapes=[given])
    imported = bring_in(put(tmp_path / "d", {"a.png": PICTURE, "a.json": document}), "labelme", class_names=["dent"])
    assert boxes_of(imported, WH) == {"a.png": boxes}
    assert rules_of(imported) == rules


PLACES = {
    "beside": ({"a.png": PICTURE, "a.json": labelme_json(CONTROL)}, "a.png"),
    "another folder": ({"i/a.png": PICTURE, "j/a.json": labelme_json(CONTROL, imagePath="..\\i\\a.png")}, "i/a.png"),
    "path of another machine": (
        {"i/a.png": PICTURE, "j/a.json": labelme_json(CONTROL, imagePath="/x/y/a.png")}, "i/a.png"),
    "renamed together": ({"b.png": PICTURE, "b.json": labelme_json(CONTROL)}, "b.png"),
    "no path": ({"a.png": PICTURE, "a.json": labelme_json(CONTROL, imagePath=None)}, "a.png"),
    "embedded": ({"a.json": labelme_json(CONTROL, imageData=base64.b64encode(PICTURE).decode())}, "a.json"),
    "embedded and beside": (
        {"a.png": PICTURE, "a.json": labelme_json(CONTROL, imageData=base64.b64encode(b"old").decode())}, "a.png"),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACES.values(), ids=PLACES)
def test_where_the_picture_is(case, tmp_path: Path) -> None:
    files, origin = case
    imported = bring_in(put(tmp_path / "d", files), "labelme")
    (picture,) = (path for path in imported.origin if path.startswith("images/"))
    assert imported.origin[picture] == origin
    assert (imported.folder / picture).read_bytes() == PICTURE
    assert imported.counts["boxes"] == 1
    assert rules_of(imported) == []


def test_a_broken_file_is_named_with_its_line(tmp_path: Path) -> None:
    files = {"a.png": PICTURE, "a.json": labelme_json(CONTROL), "b.json": '{\n"shapes": [\n}'}
    finding = next(f for f in bring_in(put(tmp_path / "d", files), "labelme").findings if f.severity == "error")
    assert (finding.file, finding.line) == ("b.json", 3)


def test_neither_picture_nor_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"a\.png"):
        bring_in(put(tmp_path / "d", {"a.json": labelme_json(CONTROL)}), "labelme")
