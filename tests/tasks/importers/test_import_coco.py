from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders import encode, plate
from data_contracts.errors import DatasetError
from native_formats import boxes_of, bring_in, put, rules_of
from tasks.importers import detect_format

WH = (100, 80)
PICTURE = encode(plate(WH))
IMAGES = [{"id": 1, "file_name": "a.png", "width": 100, "height": 80}]
TWO = [*IMAGES, {"id": 2, "file_name": "b.png", "width": 100, "height": 80}]
CATEGORIES = [{"id": 1, "name": "dent"}, {"id": 2, "name": "hole"}]
BOX = ("dent", (10.0, 20.0, 30.0, 40.0))


def annotation(**fields: object) -> dict[str, object]:
    return {"id": 7, "image_id": 1, "category_id": 1, "bbox": [10, 20, 20, 20.0], "iscrowd": 0} | fields


def document(*annotations: object, images: object = IMAGES, categories: object = CATEGORIES) -> dict[str, object]:
    return {"images": images, "annotations": list(annotations), "categories": categories}


CASES = {
    "plain": (document(annotation()), {"a.png": [BOX], "b.png": None}, ["import_unlisted"]),
    "background": (document(annotation(), images=TWO), {"a.png": [BOX], "b.png": []}, []),
    "outline only": (
        document(annotation(bbox=[], segmentation=[[10, 20, 30, 20, 30, 40], [12, 22, 13, 30, 20, 25]]), images=TWO),
        {"a.png": [BOX], "b.png": []}, []),
    "flat outline": (
        document(annotation(bbox=None, segmentation=[10, 20, 30, 20, 30, 40]), images=TWO),
        {"a.png": [BOX], "b.png": []}, []),
    "mask only": (
        document(annotation(bbox=None, segmentation={"size": [80, 100], "counts": [820, *[20, 60] * 19, 20, 5640]}),
                 images=TWO), {"a.png": [BOX], "b.png": []}, []),
    "compressed mask": (
        document(annotation(bbox=None, segmentation={"size": [4, 3], "counts": "5220O"}), images=TWO),
        {"a.png": [("dent", (1.0, 1.0, 3.0, 3.0))], "b.png": []}, []),
    "crowd": (
        document(annotation(), annotation(iscrowd=1, bbox=[0, 0, 50, 50]), images=TWO),
        {"a.png": [BOX], "b.png": []}, ["import_crowd"]),
    "unknown image": (
        document(annotation(), annotation(image_id=9), images=TWO), {"a.png": [BOX], "b.png": []}, ["import_image_id"]),
    "unknown category": (
        document(annotation(), annotation(category_id=9), images=TWO), {"a.png": [BOX], "b.png": []},
        ["import_class_id"]),
    "category with words as id": (
        document(annotation(), annotation(category_id="one"), images=TWO), {"a.png": [BOX], "b.png": []},
        ["import_category_id"]),
    "numbers as text": (
        document(annotation(image_id="1", category_id="1")), {"a.png": [BOX], "b.png": None}, ["import_unlisted"]),
    "negative size": (
        document(annotation(), annotation(bbox=[5, 5, -2, 3]), images=TWO), {"a.png": [BOX], "b.png": []},
        ["import_box"]),
    "three numbers": (
        document(annotation(), annotation(bbox=[5, 5, 2]), images=TWO), {"a.png": [BOX], "b.png": []}, ["import_box"]),
    "text for numbers": (
        document(annotation(), annotation(bbox=["5", 5, 2, 2]), images=TWO), {"a.png": [BOX], "b.png": []},
        ["import_box"]),
    "no box at all": (
        document(annotation(), {"id": 8, "image_id": 1, "category_id": 1}, images=TWO),
        {"a.png": [BOX], "b.png": []}, ["import_box"]),
    "broken runs": (
        document(annotation(), annotation(bbox=None, segmentation={"size": [4, 3], "counts": "5~"}), images=TWO),
        {"a.png": [BOX], "b.png": []}, ["import_box"]),
    "annotation is no object": (document(annotation(), 5, images=TWO), {"a.png": [BOX], "b.png": []},
                                ["import_annotation"]),
    "image without a name": (
        document(annotation(), images=[*TWO, {"id": 3}]), {"a.png": [BOX], "b.png": []}, ["import_image"]),
    "the same image id": (
        document(annotation(), images=[*IMAGES, {"id": 1, "file_name": "b.png"}]), {"a.png": [BOX], "b.png": None},
        ["import_image_id_twice", "import_unlisted"]),
    "one picture, two images": (
        document(annotation(), annotation(image_id=2, bbox=[1, 1, 2, 2]),
                 images=[*IMAGES, {"id": 2, "file_name": "a.png"}, {"id": 3, "file_name": "b.png"}]),
        {"a.png": [("dent", (1.0, 1.0, 3.0, 3.0)), BOX], "b.png": []}, ["import_picture_twice"]),
    "file_name with its folder": (
        document(annotation(), images=[{"id": 1, "file_name": "images/a.png"}, {"id": 2, "file_name": "/x/y/b.png"}]),
        {"a.png": [BOX], "b.png": []}, []),
    "Windows folders": (
        document(annotation(), images=[{"id": 1, "file_name": "images\\a.png"}, {"id": 2, "file_name": "C:\\b.png"}]),
        {"a.png": [BOX], "b.png": []}, []),
    "climbing out": (
        document(annotation(), images=[*TWO, {"id": 3, "file_name": "../../secret.png"}]),
        {"a.png": [BOX], "b.png": []}, ["import_path"]),
    "phantom": (
        document(annotation(category_id=1), images=TWO, categories=[
            {"id": 0, "name": "parts", "supercategory": "none"}, {"id": 1, "name": "dent", "supercategory": "parts"}]),
        {"a.png": [BOX], "b.png": []}, []),
    "group with a box of its own": (
        document(annotation(category_id=0), images=TWO, categories=[
            {"id": 0, "name": "dent", "supercategory": "none"}, {"id": 1, "name": "x", "supercategory": "dent"}]),
        {"a.png": [BOX], "b.png": []}, []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_coco_files_say(case, tmp_path: Path) -> None:
    content, boxes, rules = case
    files = {"_annotations.coco.json": content, "images/a.png": PICTURE, "images/b.png": PICTURE}
    imported = bring_in(put(tmp_path / "d", files), "coco")
    assert boxes_of(imported, WH) == boxes
    assert rules_of(imported) == rules


CLASS_LISTS = {
    "from 1": ([(1, "dent", ""), (2, "hole", "")], ("dent", "hole")),
    "gaps and another order": ([(9, "hole", ""), (1, "dent", ""), (4, "chip", "")], ("dent", "chip", "hole")),
    "phantom": ([(0, "all", "none"), (1, "dent", "all"), (2, "hole", "all")], ("dent", "hole")),
    "phantom that is its own group": ([(0, "all", "all"), (1, "dent", "all")], ("dent",)),
    "phantom with the name of its class": ([(0, "dent", "none"), (1, "dent", "dent")], ("dent",)),
    "a class above another": (
        [(1, "dent", ""), (2, "rust", ""), (3, "red rust", "rust")],
        ("dent", "rust", "red rust"),
    ),
    "a name twice": ([(1, "dent", ""), (2, "hole", ""), (3, "dent", "")], ("dent", "hole")),
    "a group of no one": ([(0, "rust", "none"), (1, "dent", "none")], ("rust", "dent")),
}


@pytest.mark.parametrize("case", CLASS_LISTS.values(), ids=CLASS_LISTS)
def test_classes_follow_the_category_ids(case, tmp_path: Path) -> None:
    given, names = case
    categories = [{"id": number, "name": name, "supercategory": parent} for number, name, parent in given]
    files = {"x.json": document(annotation(), categories=categories), "a.png": PICTURE}
    assert bring_in(put(tmp_path / "d", files), "coco").class_names == names


REFUSED = {
    "images are no list": ([{"images": {}, "annotations": [], "categories": []}], "lists named images"),
    "no annotations": ([{"images": [], "categories": []}], "lists named images"),
    "id twice": ([document(annotation(), categories=[{"id": 1, "name": "a"}, {"id": 1, "name": "b"}])], "of its own"),
    "no name": ([document(annotation(), categories=[{"id": 1}])], "a name"),
    "splits contradict": (
        [document(annotation()), document(annotation(), categories=[{"id": 1, "name": "hole"}])], "one version"),
    "no picture": ([document(annotation(), images=[{"id": 1, "file_name": "gone.png"}])], "gone.png"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_imported_at_all(case, tmp_path: Path) -> None:
    documents, words = case
    files = {f"{number}.json": content for number, content in enumerate(documents)}
    with pytest.raises(DatasetError, match=words):
        bring_in(put(tmp_path / "d", {**files, "a.png": PICTURE}), "coco")
    assert list(tmp_path.iterdir()) == [tmp_path / "d"]


def test_a_file_in_utf_16_is_found_and_read(tmp_path: Path) -> None:
    text = json.dumps(document(annotation())).encode("utf-16")
    folder = put(tmp_path / "d", {"x.json": text, "a.png": PICTURE})
    assert detect_format(folder) == "coco"
    assert boxes_of(bring_in(folder, "coco"), WH) == {"a.png": [BOX]}


def test_splits_and_equal_names_in_different_folders(tmp_path: Path) -> None:
    files = {
        "annotations/instances_train2017.json": document(annotation(image_id=1)),
        "annotations/instances_val2017.json": document(annotation(bbox=[1, 2, 3, 4])),
        "train2017/a.png": PICTURE,
        "val2017/a.png": PICTURE,
    }
    imported = bring_in(put(tmp_path / "d", files), "coco")
    assert imported.counts["train"] == imported.counts["val"] == 1
    assert (imported.folder / "labels/val/a.txt").read_text().startswith("0 0.025")
    assert imported.origin["labels/val/a.txt"] == "annotations/instances_val2017.json"
    assert rules_of(imported) == []


def test_an_ambiguous_name_is_not_guessed(tmp_path: Path) -> None:
    files = {"x.json": document(annotation(), images=TWO), "p/a.png": PICTURE, "q/a.png": PICTURE, "b.png": PICTURE}
    finding = next(f for f in bring_in(put(tmp_path / "d", files), "coco").findings if f.severity == "error")
    assert finding.rule == "import_which_picture"
    assert "p/a.png, q/a.png" in finding.got
    assert "image 1" in finding.got
