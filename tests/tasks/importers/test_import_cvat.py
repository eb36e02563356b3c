from __future__ import annotations

from pathlib import Path

import pytest

from builders import encode, plate
from native_formats import boxes_of, bring_in, cvat_xml, put, rules_of

WH = (100, 80)
PICTURE = encode(plate(WH))
BOX = ("dent", (10.0, 20.0, 30.0, 40.0))
EDGES = 'xtl="10" ytl="20" xbr="30" ybr="40"'
SHAPES = {
    "box": (f'<box label="dent" {EDGES} occluded="1"><attribute name="a">b</attribute></box>', [BOX], []),
    "turned box": ('<box label="dent" xtl="10" ytl="25" xbr="30" ybr="35" rotation="90"/>',
                   [("dent", (15.0, 20.0, 25.0, 40.0))], []),
    "polygon": ('<polygon label="dent" points="10,20;30,30;15,40"/>', [BOX], []),
    "polyline": ('<polyline label="dent" points="10,20;30,40"/>', [BOX], []),
    "ellipse": ('<ellipse label="dent" cx="20" cy="30" rx="10" ry="10"/>', [BOX], []),
    "turned ellipse": ('<ellipse label="dent" cx="20" cy="30" rx="10" ry="5" rotation="90"/>',
                       [("dent", (15.0, 20.0, 25.0, 40.0))], []),
    "mask": ('<mask label="dent" rle="0, 400" left="10" top="20" width="20" height="20"/>', [BOX], []),
    "points": ('<points label="dent" points="10,20;30,40"/>', [], ["import_shape"]),
    "tag": ('<tag label="dent"/>', [], []),
    "outside": (f'<box label="dent" {EDGES} outside="1"/>', [], []),
    "no number": ('<box label="dent" xtl="" ytl="20" xbr="30" ybr="40"/>', [], ["import_box"]),
    "not finite": ('<box label="dent" xtl="nan" ytl="20" xbr="30" ybr="40"/>', [], ["import_box"]),
    "broken points": ('<polygon label="dent" points="10;20"/>', [], ["import_box"]),
    "no points": ('<polygon label="dent" points=""/>', [], ["import_box"]),
    "no label": (f"<box {EDGES}/>", [], ["import_class_name"]),
}  # fmt: skip


TAGS = {"a tag only": ("", ["import_tag"]), "beside a box": (f'<box label="dent" {EDGES}/>', [])}


@pytest.mark.parametrize(("beside", "told"), TAGS.values(), ids=TAGS)
def test_a_tag_without_a_box_is_told(beside, told, tmp_path: Path) -> None:
    image = f'<image id="0" name="a.png" width="100" height="80"><tag label="dent"/>{beside}</image>'
    xml = cvat_xml(["dent", "hole"], image)
    imported = bring_in(put(tmp_path / "d", {"images/a.png": PICTURE, "annotations.xml": xml}), "cvat")
    assert [finding.rule for finding in imported.findings if finding.rule == "import_tag"] == told


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
def test_what_shapes_become(case, tmp_path: Path) -> None:
    given, boxes, rules = case
    xml = cvat_xml(["dent", "hole"], f'<image id="0" name="a.png" width="100" height="80">\n{given}\n</image>')
    imported = bring_in(put(tmp_path / "d", {"images/a.png": PICTURE, "annotations.xml": xml}), "cvat")
    assert boxes_of(imported, WH) == {"a.png": boxes}
    assert rules_of(imported) == rules
    assert imported.class_names == ("dent", "hole")
    assert all(finding.line == 4 for finding in imported.findings if finding.severity != "notice")


def test_subsets_are_splits_and_folders_of_names_stay(tmp_path: Path) -> None:
    images = "".join(
        f'<image id="{number}" name="lot7/{name}.png" subset="{subset}" width="100" height="80"/>'
        for number, (name, subset) in enumerate({"a": "Train", "b": "Validation", "c": "default"}.items())
    )
    files = {f"images/lot7/{name}.png": PICTURE for name in "abc"}
    imported = bring_in(put(tmp_path / "d", {**files, "annotations.xml": cvat_xml(["dent"], images)}), "cvat")
    assert set(imported.origin) >= {"images/train/lot7/a.png", "images/val/lot7/b.png", "images/train/lot7/c.png"}
    assert imported.counts["backgrounds"] == 3


def test_tracks_of_a_video(tmp_path: Path) -> None:
    track = (
        f'<track id="0" label="dent"><box frame="0" outside="0" {EDGES}/><box frame="1" outside="1" {EDGES}/>'
        f'<box frame="2" outside="0" {EDGES}/></track>'
    )
    files = {f"images/frame_00000{number}.png": PICTURE for number in range(3)}
    imported = bring_in(put(tmp_path / "d", {**files, "annotations.xml": cvat_xml(["dent"], track)}), "cvat")
    shown = {"frame_000000.png": [BOX], "frame_000001.png": None, "frame_000002.png": [BOX]}
    assert boxes_of(imported, WH) == shown
