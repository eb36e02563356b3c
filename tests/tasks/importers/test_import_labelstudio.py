from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

from builders import encode, plate
from native_formats import boxes_of, bring_in, put, region, rules_of
from tasks.importers.brush import brush_extent

WH = (100, 80)
PICTURE = encode(plate(WH))
BOX = ("dent", (10.0, 20.0, 30.0, 40.0))
REGION = region(*BOX, WH)


def task(*regions: object, image: str = "a.png", **fields: object) -> dict[str, object]:
    return {"id": 4, "data": {"image": image}, "annotations": [{"id": 1, "result": list(regions)}], **fields}


def polygon(points: object, **value: object) -> dict[str, object]:
    return {
        "id": "p", "type": "polygonlabels", "original_width": 100, "original_height": 80,
        "value": {"points": points, "polygonlabels": ["dent"], **value},
    }  # fmt: skip


def packed_brush(wh: tuple[int, int], box: tuple[int, int, int, int]) -> list[int]:
    """A brush mask of one box in rle-pack, each byte of it told for itself, in runs of up to 256."""
    alpha = np.zeros((wh[1], wh[0], 4), np.uint8)
    alpha[box[1] : box[3], box[0] : box[2]] = 255
    values = alpha.ravel()
    bits = f"{len(values):032b}" + f"{7:05b}" + "0111" * 4
    for start in range(0, len(values), 256):
        run = values[start : start + 256]
        bits += "0" + "00" + f"{len(run) - 1:08b}" + "".join(f"{value:08b}" for value in run)
    bits += "0" * (-len(bits) % 8)
    return list(int(bits, 2).to_bytes(len(bits) // 8, "big"))


BRUSH = {"id": "b", "type": "brushlabels", "original_width": 100, "original_height": 80}
REGIONS = {
    "rectangle": ([REGION], [BOX], []),
    "turned about its corner": (
        [region("dent", (50, 40, 70, 50), WH, rotation=90)], [("dent", (40.0, 40.0, 50.0, 60.0))], []),
    "polygon": ([polygon([[10, 25], [30, 30], [12, 50]])], [BOX], []),
    "ellipse": (
        [{"type": "ellipselabels", "original_width": 100, "original_height": 80, "value": {
            "x": 20, "y": 37.5, "radiusX": 10, "radiusY": 12.5, "rotation": 0, "ellipselabels": ["dent"]}}], [BOX], []),
    "brush": (
        [{**BRUSH, "value": {"format": "rle", "rle": packed_brush(WH, (10, 20, 30, 40)), "brushlabels": ["dent"]}}],
        [BOX], []),
    "broken brush": (
        [{**BRUSH, "value": {"format": "rle", "rle": [0, 0, 1], "brushlabels": ["dent"]}}], [], ["import_box"]),
    "shape and labels told apart": (
        [{**REGION, "type": "rectangle", "value": {k: v for k, v in REGION["value"].items() if k != "rectanglelabels"}},
         {"id": REGION["id"], "type": "labels", "value": {**REGION["value"], "rectanglelabels": None,
                                                          "labels": ["dent"]}}], [BOX], []),
    "several labels": (
        [region(*BOX, WH, rectanglelabels=["dent", "hole"])], [BOX, ("hole", BOX[1])], []),
    "choices": ([{"type": "choices", "value": {"choices": ["bad"]}}, REGION], [BOX], []),
    "key point": (
        [{"id": "k", "value": {"x": 1, "y": 2, "width": 1, "keypointlabels": ["dent"]}}, REGION],
        [BOX], ["import_shape"]),
    "no label": ([region(*BOX, WH, rectanglelabels=[])], [], ["import_box"]),
    "turned without a size": ([{"value": {**REGION["value"], "rotation": 30}}], [], ["import_box"]),
    "text for a number": ([region(*BOX, WH, x="10")], [], ["import_box"]),
    "picture turned in the tool": ([{**REGION, "image_rotation": 90}], [], ["import_box"]),
    "another shape of the picture": ([region(*BOX, (80, 80))], [("dent", (12.5, 20.0, 37.5, 40.0))],
                                     ["import_picture_size"]),
    "the picture scaled": ([region("dent", (20, 40, 60, 80), (200, 160))], [BOX], []),
}  # fmt: skip


@pytest.mark.parametrize("case", REGIONS.values(), ids=REGIONS)
def test_what_regions_become(case, tmp_path: Path) -> None:
    regions, boxes, rules = case
    folder = put(tmp_path / "d", {"a.png": PICTURE, "export.json": [task(*copy.deepcopy(regions))]})
    imported = bring_in(folder, "labelstudio", class_names=["dent", "hole"])
    assert boxes_of(imported, WH) == {"a.png": boxes}
    assert rules_of(imported) == rules


MINIMAL = {"x": 10, "y": 25, "width": 20, "height": 25, "rotation": 0, "rectanglelabels": ["dent"],
           "original_width": 100, "original_height": 80}  # fmt: skip
OTHER = {"id": 2, "result": [region("dent", (1, 2, 3, 4), WH)]}
TASKS = {
    "upload": (task(REGION, image="/data/upload/3/89abcdef-a.png"), [BOX], []),
    "local files": (task(REGION, image="/data/local-files/?d=set%2Fa.png"), [BOX], []),
    "address with a query": (task(REGION, image="https://store.example/bucket/a.png?sig=x%2Fy"), [BOX], []),
    "upload with encoded characters": (task(REGION, image="/data/upload/3/89abcdef-%61.png"), [BOX], []),
    "the newer of two without dates": (
        task(annotations=[{**OTHER, "id": 9}, {"id": 10, "result": [REGION]}]), [BOX], ["import_annotations"]),
    "store": (task(REGION, image="s3://bucket/b/a.png"), [BOX], []),
    "nothing found": (task(), [], []),
    "drawn to the left": (
        task({**REGION, "value": {**REGION["value"], "width": -5}}), [], ["import_box_size"]),  # type: ignore[dict-item]
    "not annotated": (task(annotations=[]), None, ["import_unlisted"]),
    "cancelled": (task(annotations=[{"id": 1, "was_cancelled": True, "result": [REGION]}]), None, []),
    "cancelled once": (
        task(annotations=[{"id": 1, "was_cancelled": True, "result": []}, {"id": 2, "result": [REGION]}]), [BOX], []),
    "ground truth": (
        task(annotations=[{"id": 1, "ground_truth": True, "result": [REGION]}, OTHER]), [BOX], ["import_annotations"]),
    "the newest": (
        task(annotations=[{**OTHER, "updated_at": "2024-1"}, {"id": 1, "updated_at": "2024-2", "result": [REGION]}]),
        [BOX], ["import_annotations"]),
    "JSON-MIN": ({"image": "/upload/1/89abcdef-a.png", "id": 1, "label": [MINIMAL], "annotation_id": 1}, [BOX], []),
    "JSON-MIN, nothing found": ({"image": "a.png", "id": 1, "annotation_id": 1}, [], []),
    "older export": ({"data": {"image": "a.png"}, "completions": [{"id": 1, "result": [REGION]}]}, [BOX], []),
    "no picture": (task(REGION, image="b.png"), None, ["import_no_picture", "import_unlisted"]),
}  # fmt: skip


@pytest.mark.parametrize("case", TASKS.values(), ids=TASKS)
def test_what_tasks_say(case, tmp_path: Path) -> None:
    given, boxes, rules = case
    files = {"set/a.png": PICTURE, "set/c.png": PICTURE, "export.json": [given, task(REGION, image="c.png")]}
    imported = bring_in(put(tmp_path / "d", files), "labelstudio")
    assert boxes_of(imported, WH)["a.png"] == boxes
    assert set(rules_of(imported)) | {"import_unlisted"} == set(rules) | {"import_unlisted"}


BRUSHES = {
    "cut off": (bytes(packed_brush(WH, (1, 1, 9, 9))[:-9]), WH, "cut off"),
    "of another picture": (bytes(packed_brush((10, 10), (1, 1, 9, 9))), WH, "100 x 80"),
    "empty": (bytes(packed_brush(WH, (0, 0, 0, 0))), WH, "empty"),
    "too large": (b"", (100_000, 100_000), "100000 x 100000"),
}


@pytest.mark.parametrize("case", BRUSHES.values(), ids=BRUSHES)
def test_brush_masks_that_are_none(case) -> None:
    data, wh, words = case
    with pytest.raises(ValueError, match=words):
        brush_extent(data, wh)


@pytest.mark.parametrize(("regions", "told"), [([], ["import_tag"]), ([REGION], [])], ids=["alone", "beside a box"])
def test_a_choice_without_a_box_is_told(regions, told, tmp_path: Path) -> None:
    choice = {"type": "choices", "value": {"choices": ["scrap"]}}
    files = {"x.json": [task(*regions, choice), task(REGION, image="b.png")], "a.png": PICTURE, "b.png": PICTURE}
    imported = bring_in(put(tmp_path / "d", files), "labelstudio")
    assert [finding.rule for finding in imported.findings if finding.rule == "import_tag"] == told
