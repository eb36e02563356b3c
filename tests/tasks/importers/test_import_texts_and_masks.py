from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image as PillowImage

from builders import encode, plate
from data_contracts.errors import DatasetError, InvalidInput
from native_formats import boxes_of, bring_in, put, rules_of

WH = (100, 80)
PICTURE = encode(plate(WH))
JPEG = encode(plate(WH), "jpeg")
BOX = ("dent", (10.0, 20.0, 30.0, 40.0))


def mask(*boxes: tuple[int, int, int, int, int], wh: tuple[int, int] = WH) -> bytes:
    """A PNG with left, top, right, bottom, value."""
    pixels = np.zeros(wh[::-1], np.uint8)
    for left, top, right, bottom, value in boxes:
        pixels[top:bottom, left:right] = value
    return cv2.imencode(".png", pixels)[1].tobytes()


def palette_mask(tmp_path: Path) -> bytes:
    pixels = np.zeros(WH[::-1], np.uint8)
    pixels[18:42, 8:32] = 255
    pixels[20:40, 10:30] = 1
    pixels[60:70, 60:70] = 2
    image = PillowImage.fromarray(pixels, "P")
    image.putpalette([value for number in range(256) for value in (number, 255 - number, 7)])
    image.save(tmp_path / "p.png")
    return (tmp_path / "p.png").read_bytes()


SMALL = (60, 60, 70, 70)
MASKS = {
    "beside, class by folder": (
        {"dent/Imgs/a.jpg": JPEG, "dent/Imgs/a.png": mask((10, 20, 30, 40, 255))}, {"a.jpg": [BOX]}, []),
    "beside, empty": (
        {"dent/a.jpg": JPEG, "dent/a.png": mask((10, 20, 30, 40, 255)), "fine/b.jpg": JPEG, "fine/b.png": mask()},
        {"a.jpg": [BOX], "b.jpg": []}, []),
    "grey edges": (
        {"dent/a.jpg": JPEG, "dent/a.png": mask((9, 19, 31, 41, 90), (10, 20, 30, 40, 250))}, {"a.jpg": [BOX]}, []),
    "folders": ({"images/a.png": PICTURE, "masks/a.png": mask((10, 20, 30, 40, 255))},
                {"a.png": [("defect", BOX[1])]}, []),
    "suffix": ({"k1/a.png": PICTURE, "k1/a_label.png": mask((10, 20, 30, 40, 1))}, {"a.png": [("k1", BOX[1])]}, []),
    "one mask per class": (
        {"images/a.png": PICTURE, "masks/dent/a.png": mask((10, 20, 30, 40, 255)),
         "masks/hole/a.png": mask((*SMALL, 9))},
        {"a.png": [BOX, ("hole", (60.0, 60.0, 70.0, 70.0))]}, []),
    "ground truth folders": (
        {"train/good/a.png": PICTURE, "test/good/b.png": PICTURE, "test/dent/c.png": PICTURE,
         "ground_truth/dent/c_mask.png": mask((10, 20, 30, 40, 255))},
        {"a.png": [], "b.png": [], "c.png": [BOX]}, []),
    "class ids with names": (
        {"images/a.png": PICTURE, "masks/a.png": mask((10, 20, 30, 40, 1), (*SMALL, 2)), "classes.txt": "dent\nhole\n"},
        {"a.png": [BOX, ("hole", (60.0, 60.0, 70.0, 70.0))]}, []),
    "class ids after a background": (
        {"images/a.png": PICTURE, "masks/a.png": mask((10, 20, 30, 40, 1)), "classes.txt": "background\ndent\n"},
        {"a.png": [BOX]}, []),
    "class ids without names": (
        {"images/a.png": PICTURE, "masks/a.png": mask((10, 20, 30, 40, 1), (*SMALL, 3))},
        {"a.png": [("1", BOX[1]), ("3", (60.0, 60.0, 70.0, 70.0))]}, []),
    "two parts and a gap": (
        {"dent/a.jpg": JPEG, "dent/a.png": mask((10, 20, 18, 40, 255), (21, 20, 30, 40, 255), (*SMALL, 255))},
        {"a.jpg": [BOX, ("dent", (60.0, 60.0, 70.0, 70.0))]}, []),
    "at the edge": ({"dent/a.jpg": JPEG, "dent/a.png": mask((1, 1, 99, 79, 255))},
                    {"a.jpg": [("dent", (1.0, 1.0, 99.0, 79.0))]}, []),
    "specks only": (
        {"dent/a.jpg": JPEG, "dent/a.png": mask((10, 20, 30, 40, 255)), "dent/b.jpg": JPEG,
         "dent/b.png": mask((1, 1, 2, 2, 255))}, {"a.jpg": [BOX], "b.jpg": []}, ["import_mask_specks"]),
    "another size": (
        {"dent/a.jpg": JPEG, "dent/a.png": mask((10, 20, 30, 40, 255), wh=(99, 80))}, {"a.jpg": [BOX]},
        ["import_picture_size"]),
    "no mask": (
        {"images/a.png": PICTURE, "masks/a.png": mask((10, 20, 30, 40, 255)), "images/b.png": PICTURE},
        {"a.png": [("defect", BOX[1])], "b.png": None}, ["import_unlisted"]),
    "no picture": (
        {"images/a.png": PICTURE, "masks/a.png": mask((10, 20, 30, 40, 255)), "masks/b.png": mask()},
        {"a.png": [("defect", BOX[1])]}, ["import_no_picture"]),
    "colours": (
        {"images/a.png": PICTURE, "masks/a.png": mask((10, 20, 30, 40, 255)), "images/b.png": PICTURE,
         "masks/b.png": encode(plate(WH, ((1, 1, 9, 9), (255, 0, 0))))},
        {"a.png": [("defect", BOX[1])], "b.png": None}, ["import_mask", "import_unlisted"]),
    "no picture file": (
        {"images/a.png": PICTURE, "masks/a.png": mask((10, 20, 30, 40, 255)), "images/b.png": PICTURE,
         "masks/b.png": b"text"}, {"a.png": [("defect", BOX[1])], "b.png": None}, ["import_mask", "import_unlisted"]),
}  # fmt: skip


@pytest.mark.parametrize("case", MASKS.values(), ids=MASKS)
def test_what_masks_become(case, tmp_path: Path) -> None:
    files, boxes, rules = case
    imported = bring_in(put(tmp_path / "d", files), "masks")
    assert boxes_of(imported, WH) == boxes
    assert rules_of(imported) == rules


def test_masks_without_a_marked_pixel_are_told_once(tmp_path: Path) -> None:
    files = {f"dent/{name}.jpg": JPEG for name in "abc"} | {"dent/a.png": mask((10, 20, 30, 40, 255))}
    imported = bring_in(put(tmp_path / "d", {**files, "dent/b.png": mask(), "dent/c.png": mask()}), "masks")
    (finding,) = [finding for finding in imported.findings if finding.rule == "import_mask_empty"]
    assert (finding.file, finding.severity) == ("dent/b.png", "notice")
    assert finding.got == "masks without a marked pixel: 2, this one first"


def test_palettes_hold_class_ids_and_255_is_no_class(tmp_path: Path) -> None:
    files = {"images/a.png": PICTURE, "SegmentationClass/a.png": palette_mask(tmp_path)}
    imported = bring_in(put(tmp_path / "d", files), "masks")
    assert boxes_of(imported, WH) == {"a.png": [("1", BOX[1]), ("2", (60.0, 60.0, 70.0, 70.0))]}


def test_one_class_of_the_project_is_the_class_of_all_masks(tmp_path: Path) -> None:
    files = {f"k{number}/a{number}.jpg": JPEG for number in range(2)}
    files |= {f"k{number}/a{number}.png": mask((10, 20, 30, 40, 255)) for number in range(2)}
    imported = bring_in(put(tmp_path / "d", files), "masks", class_names=["dent"])
    assert boxes_of(imported, WH) == {"a0.jpg": [BOX], "a1.jpg": [BOX]}


ROWS = {
    "spaces": ("10 20 30 40 1", [("open", BOX[1])], []),
    "commas": ("10,20,30,40,1\r\n", [("open", BOX[1])], []),
    "both, a mark and blank lines": ("\ufeff\n10, 20, 30, 40, 6\n\n", [("pin-hole", BOX[1])], []),
    "empty": ("", [], []),
    "corners swapped": ("30 40 10 20 1", [], ["import_box_size"]),
    "type 0": ("10 20 30 40 0", [], ["import_class_id"]),
    "type 7": ("10 20 30 40 7", [], ["import_class_id"]),
    "half a type": ("10 20 30 40 1.5", [], ["import_row"]),
    "four numbers": ("10 20 30 40", [], ["import_row"]),
    "words": ("a b c d 1", [], ["import_row"]),
    "nan": ("nan 20 30 40 1", [], ["import_row"]),
}


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_rows_of_deeppcb(case, tmp_path: Path) -> None:
    rows, boxes, rules = case
    files = {
        "P/g/1/1_test.png": PICTURE, "P/g/1/1_temp.png": PICTURE, "P/g/1_not/1.txt": rows,
        "P/trainval.txt": "g/1/1.png g/1_not/1.txt\n", "P/test.txt": "",
    }  # fmt: skip
    imported = bring_in(put(tmp_path / "d", files), "deeppcb")
    assert boxes_of(imported, WH) == {"1_test.png": boxes}
    assert rules_of(imported) == rules
    assert imported.counts["train"] == 1


def test_a_list_that_names_what_is_not_there(tmp_path: Path) -> None:
    files = {
        "g/1/1_test.png": PICTURE, "g/1_not/1.txt": "10 20 30 40 1",
        "trainval.txt": "g/1/1.png g/1_not/1.txt\n../x.jpg ../x.txt\n",
    }  # fmt: skip
    finding = bring_in(put(tmp_path / "d", files), "deeppcb").findings[0]
    assert (finding.rule, finding.file, finding.line) == ("import_no_label_file", "trainval.txt", 2)


YAML = "train: images/train\nval: images/val\nnames: [hole, dent]\n"
YOLO_BOX = "1 0.2 0.375 0.2 0.25\n"
LABELS = {
    "box": (YOLO_BOX, [BOX], []),
    "outline": ("1 .1 .25 .3 .25 .3 .5", [BOX], []),
    "turned box": ("1 0.2 0.25 0.3 0.375 0.2 0.5 0.1 0.375", [BOX], []),
    "empty": ("", [], []),
    "unknown class": (f"{YOLO_BOX}2 0.2 0.375 0.2 0.25", [BOX], ["import_class_id"]),
    "words": (f"{YOLO_BOX}1 zwei 0.375 0.2 0.25", [BOX], ["import_label_numbers"]),
    "twice": (YOLO_BOX * 2, [BOX], ["import_label_duplicate"]),
    "pixels": (f"{YOLO_BOX}1 20 30 20 20", [BOX], ["import_box_range"]),
}


@pytest.mark.parametrize("case", LABELS.values(), ids=LABELS)
def test_labels_of_yolo(case, tmp_path: Path) -> None:
    rows, boxes, rules = case
    files = {"images/train/a.png": PICTURE, "images/val/b.png": PICTURE, "labels/train/a.txt": rows, "data.yaml": YAML}
    imported = bring_in(put(tmp_path / "d", files), "yolo")
    assert boxes_of(imported, WH) == {"a.png": boxes, "b.png": None}
    assert rules_of(imported) == rules
    assert imported.class_names == ("hole", "dent")
    assert (imported.counts["train"], imported.counts["val"]) == (1, 1)


NAMES = {
    "classes.txt": ({"classes.txt": "hole\ndent\n"}, None),
    "class list": ({}, ["hole", "dent"]),
    "ids and names": ({"data.yaml": "train: images/train\nnames:\n  1: dent\n  0: hole\n"}, None),
    "folders of another machine": ({"data.yaml": "train: D:\\x\\images\\train\nnames: [hole, dent]"}, None),
    "split that is not there": ({"data.yaml": "train: gone\nnames: [hole, dent]"}, None),
}


@pytest.mark.parametrize("case", NAMES.values(), ids=NAMES)
def test_where_class_names_come_from(case, tmp_path: Path) -> None:
    files, names = case
    folder = put(tmp_path / "d", {"images/train/a.png": PICTURE, "labels/train/a.TXT": YOLO_BOX, **files})
    imported = bring_in(folder, "yolo", class_names=names)
    assert boxes_of(imported, WH) == {"a.png": [BOX]}
    assert imported.class_names == ("hole", "dent")


def test_label_files_of_no_picture_and_shared_splits_are_told(tmp_path: Path) -> None:
    files = {"data.yaml": "train: images\nval: images\nnames: [hole, dent]", "images/a.png": PICTURE}
    files |= {"labels/a.txt": YOLO_BOX, "labels/b.txt": YOLO_BOX, "labels/classes.txt": "hole\ndent"}
    imported = bring_in(put(tmp_path / "d", files), "yolo")
    assert rules_of(imported) == ["import_no_picture", "import_split_shared"]
    assert imported.counts["train"] == 1


def test_listed_backgrounds_are_declared(tmp_path: Path) -> None:
    files = {"data.yaml": YAML, "images/train/a.png": PICTURE, "images/val/b.png": PICTURE, "images/val/c.png": PICTURE}
    imported = bring_in(put(tmp_path / "d", {**files, "backgrounds.txt": "images/val/b.png\n"}), "yolo")
    assert boxes_of(imported, WH) == {"a.png": None, "b.png": [], "c.png": None}


REFUSED = {
    "no names": ({}, "--classes"),
    "ids from 1": ({"data.yaml": "train: images\nnames: {1: a, 2: b}"}, "0 to 1"),
    "no list": ({"data.yaml": "train: images\nnames: 5"}, "a list of class names"),
    "broken YAML": ({"data.yaml": "names: [a"}, "YAML"),
    "the same name twice": ({"data.yaml": "train: images\nnames: [a, a]"}, "distinct"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_class_names_that_are_none(case, tmp_path: Path) -> None:
    files, words = case
    folder = put(tmp_path / "d", {"images/a.png": PICTURE, "labels/a.txt": "0 .5 .5 .1 .1", **files})
    with pytest.raises(InvalidInput, match=words) as caught:
        bring_in(folder, "yolo")
    assert isinstance(caught.value, DatasetError) == bool(case[0]), "without names nothing is known to be wrong"
