from __future__ import annotations

from pathlib import Path

import pytest

from builders import encode, plate
from native_formats import boxes_of, bring_in, put, rules_of, voc_xml

WH = (100, 80)
BOX = ("dent", (10.0, 20.0, 30.0, 40.0))
PICTURE = encode(plate(WH))
TURNED = encode(plate(WH), "jpeg", orientation=6)
CASES = {
    "plain": ({"a.png": PICTURE, "a.xml": voc_xml("a.png", WH, [BOX])}, {"a.png": [BOX]}, []),
    "name without suffix": ({"a.png": PICTURE, "x/a.xml": voc_xml("a", WH, [BOX])}, {"a.png": [BOX]}, []),
    "another case": ({"JPEGImages/A.PNG": PICTURE, "a.XML": voc_xml("a.jpg", WH, [BOX])}, {"A.PNG": [BOX]}, []),
    "folders in the name": ({"a.png": PICTURE, "b.xml": voc_xml(r"D:\s\a.png", WH, [BOX])}, {"a.png": [BOX]}, []),
    "name with dots": ({"a.v1.2.png": PICTURE, "a.v1.2.xml": voc_xml("a.v1.2", WH, [BOX])}, {"a.v1.2.png": [BOX]}, []),
    "composed otherwise": (
        {"pie\u0300ce.png": PICTURE, "p.xml": voc_xml("pi\u00e8ce.png", WH, [BOX])}, {"pie\u0300ce.png": [BOX]}, []),
    "name of a copy": (
        {"a.png": PICTURE, "b.png": PICTURE, "a.xml": voc_xml("a.png", WH, []), "b.xml": voc_xml("a.png", WH, [BOX])},
        {"a.png": [], "b.png": [BOX]}, ["import_filename"]),
    "no object": ({"a.png": PICTURE, "a.xml": voc_xml("a.png", WH, [])}, {"a.png": []}, []),
    "picture without annotation": (
        {"a.png": PICTURE, "b.png": PICTURE, "a.xml": voc_xml("a.png", WH, [BOX])},
        {"a.png": [BOX], "b.png": None}, ["import_unlisted"]),
    "annotation without picture": (
        {"a.png": PICTURE, "a.xml": voc_xml("a.png", WH, [BOX]), "b.xml": voc_xml("b.png", WH, [BOX])},
        {"a.png": [BOX]}, ["import_no_picture"]),
    "over the edge": (
        {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [("dent", (90, 60, 120, 80))])},
        {"a.png": [("dent", (90.0, 60.0, 100.0, 80.0))]}, ["import_box_clipped"]),
    "one pixel over the edge": (
        {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [("dent", (90, 60, 101, 81))])},
        {"a.png": [("dent", (90.0, 60.0, 100.0, 80.0))]}, []),
    "outside": (
        {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [BOX, ("dent", (200, 10, 220, 30))])}, {"a.png": [BOX]},
        ["import_box_outside"]),
    "without area": (
        {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [BOX, ("dent", (10, 10, 10, 30))])}, {"a.png": [BOX]},
        ["import_box_zero"]),
    "the same box twice": (
        {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [BOX, BOX])}, {"a.png": [BOX]}, ["import_box_twice"]),
    "corners swapped": (
        {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [("dent", (30, 40, 10, 20))])}, {"a.png": [BOX]},
        ["import_corners_swapped"]),
    "two boxes in one object": (
        {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [BOX, BOX]).replace("</bndbox>", "</bndbox><bndbox/>", 1)},
        {"a.png": [BOX]}, ["import_box"]),
    "no number": (
        {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [BOX, BOX]).replace("<xmax>30</xmax>", "<xmax/>", 1)},
        {"a.png": [BOX]}, ["import_box"]),
    "not finite": (
        {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [BOX, ("b", (1.0, 2.0, float("inf"), 3.0))], whole=False)},
        {"a.png": [BOX]}, ["import_box"]),
    "no class": (
        {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [BOX, ("", (1, 2, 3, 4))])}, {"a.png": [BOX]},
        ["import_class_name"]),
    "size of nothing": ({"a.png": PICTURE, "a.xml": voc_xml("a", (0, 0), [BOX])}, {"a.png": [BOX]}, []),
    "another size": ({"a.png": PICTURE, "a.xml": voc_xml("a", (80, 80), [BOX])}, {"a.png": [BOX]},
                     ["import_picture_size"]),
    "parts and outlines": (
        {"a.png": PICTURE, "a.xml": "<annotation><object><name>dent</name><part><bndbox><xmin>1</xmin></bndbox></part>"
         "<polygon><x1>10</x1><y1>20</y1><x2>30</x2><y2>25</y2><x3>12</x3><y3>40</y3></polygon></object></annotation>"},
        {"a.png": [BOX]}, []),
    "turned box": (
        {"a.png": PICTURE, "a.xml": "<annotation><object><name>dent</name><robndbox><cx>20</cx><cy>30</cy><w>20</w>"
         "<h>20</h><angle>3.14159265</angle></robndbox></object></annotation>"}, {"a.png": [BOX]}, []),
    "broken XML": (
        {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [BOX]), "b.xml": "<annotation>\n<object>\n</annotation>"},
        {"a.png": [BOX]}, ["import_file"]),
    "another encoding": (
        {"a.png": PICTURE, "a.xml": b"\xff\xfe" + voc_xml("a", WH, [BOX]).encode("utf-16-le")}, {"a.png": [BOX]}, []),
    "other XML": (
        {"a.png": PICTURE, "a.xml": voc_xml("a", WH, [BOX]), "notes.xml": "<notes/>"}, {"a.png": [BOX]}, []),
    "kinds of one stem": (
        {"a.png": PICTURE, "a.bmp": encode(plate(WH), "bmp"), "a.xml": voc_xml("a.png", WH, [BOX])},
        {"a_png.png": [BOX], "a_bmp.bmp": None}, ["import_unlisted"]),
}  # fmt: skip
"""Files, boxes by imported picture, rules of the findings that are no notices."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_voc_files_say(case, tmp_path: Path) -> None:
    files, boxes, rules = case
    imported = bring_in(put(tmp_path / "d", files), "voc", class_names=["dent"])
    assert boxes_of(imported, WH) == boxes
    assert rules_of(imported) == rules


def test_findings_name_file_and_line(tmp_path: Path) -> None:
    xml = voc_xml("a.png", WH, [BOX, ("dent", (200, 10, 220, 30))])
    folder = put(
        tmp_path / "d", {"a.png": PICTURE, "ann/a.xml": xml, "ann/b.xml": "<annotation>\n\n<object></annotation>"}
    )
    broken, outside = bring_in(folder, "voc").findings[:2]
    assert (broken.file, broken.line, broken.severity) == ("ann/b.xml", 3, "error")
    assert (outside.file, outside.line) == ("ann/a.xml", xml[: xml.rindex("<object>")].count("\n") + 1)
    assert "dent from 200, 10 to 220, 30" in outside.got
    assert "100 x 80" in outside.expected


TURNED_CASES = {
    "displayed size": ((80, 100), BOX, []),
    "stored size, boxes that fit": ((100, 80), BOX, ["warning"]),
    "stored size, boxes that do not": ((100, 80), ("dent", (82.0, 20.0, 95.0, 40.0)), ["error", "error"]),
    "scaled since": ((40, 50), BOX, ["error"]),
}


@pytest.mark.parametrize("case", TURNED_CASES.values(), ids=TURNED_CASES)
def test_the_displayed_size_counts(case, tmp_path: Path) -> None:
    stated_wh, box, severities = case
    imported = bring_in(put(tmp_path / "d", {"a.jpg": TURNED, "a.xml": voc_xml("a", stated_wh, [box])}), "voc")
    found = [finding for finding in imported.findings if finding.severity != "notice"]
    assert [finding.severity for finding in found] == severities
    assert all("80 x 100" in finding.expected for finding in found)
    if box == BOX:
        assert boxes_of(imported, (80, 100)) == {"a.jpg": [BOX]}


def test_the_lists_give_the_splits(tmp_path: Path) -> None:
    files = {f"JPEGImages/{name}.png": PICTURE for name in "abcd"}
    files |= {f"Annotations/{name}.xml": voc_xml(name, WH, [BOX]) for name in "abcd"}
    lists = {"trainval": "a\nb\n", "train": "a", "val": "b  1\n", "test": "c", "dent_train": "c"}
    files |= {f"ImageSets/Main/{name}.txt": text for name, text in lists.items()}
    counts = bring_in(put(tmp_path / "d", files), "voc").counts
    assert (counts["train"], counts["val"], counts["test"]) == (2, 1, 1)


def test_difficult_objects_are_kept_and_told(tmp_path: Path) -> None:
    xml = voc_xml("a", WH, [BOX]).replace("<difficult>0", "<difficult>1")
    imported = bring_in(put(tmp_path / "d", {"a.png": PICTURE, "a.xml": xml}), "voc")
    assert imported.counts["boxes"] == 1
    assert "import_difficult" in {finding.rule for finding in imported.findings}
