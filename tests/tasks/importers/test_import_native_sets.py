from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from builders import shared_data
from native_formats import rules_of
from tasks.importers import detect_format, import_dataset
from tasks.importers.boxes import picture_size

SETS = {
    "agdd-obb": ("yolo", 20, 49, 0, {"train": 20}),
    "deeppcb": ("deeppcb", 20, 140, 0, {"train": 20}),
    "garment-coco": ("coco", 20, 22, 0, {"train": 20}),
    "kolektor-sdd-yoloseg": ("yolo", 20, 12, 8, {"train": 20}),
    "lpbf-coco": ("coco", 20, 316, 2, {"train": 20}),
    "magnetic-tile-masks": ("masks", 22, 21, 2, {"train": 22}),
    "neu-det": ("voc", 22, 48, 0, {"train": 22}),
    "roboflow-crack-as-published": ("yolo", 78, 75, 3, {"train": 60, "val": 16, "test": 2}),
    "wagon-coco-polygons": ("coco", 14, 62, 0, {"train": 14}),
}
"""Format, pictures, boxes, backgrounds, pictures per split."""
WARNINGS = {
    # A test part that is annotated in another format; the val part is all there is.
    "garment-coco": ["import_no_train_part", "import_unlisted"],
    "kolektor-sdd-yoloseg": ["import_data_yaml"],  # No validation pictures in the sample.
    "roboflow-crack-as-published": ["import_data_yaml"],  # valid is written, val is there.
    "wagon-coco-polygons": ["import_no_train_part"],
}
CLASSES = {
    "garment-coco": ("Broken_button", "Button_hike", "Color_defect", "Foreign_yarn", "Hole", "Sewing_error"),
    "deeppcb": ("open", "short", "mousebite", "spur", "copper", "pin-hole"),
    "lpbf-coco": ("defect",),
    "wagon-coco-polygons": ("gunny_bag", "wire"),
    "agdd-obb": ("c0", "c1", "c2", "c3"),
}


@pytest.mark.parametrize("name", SETS)
def test_a_published_set_imports_to_its_counts(name: str, tmp_path: Path) -> None:
    source = shared_data() / "native" / name
    source_format, pictures, boxes, backgrounds, splits = SETS[name]
    if name != "garment-coco":
        assert detect_format(source) == source_format
    classes = CLASSES[name] if name == "agdd-obb" else None
    imported = import_dataset(source, source_format, tmp_path / "set", classes)
    expected = {
        "pictures": pictures, "boxes": boxes, "labelled": pictures - backgrounds, "backgrounds": backgrounds,
        "unlabelled": 0, **splits,
    }  # fmt: skip
    assert imported.counts == expected
    assert rules_of(imported) == WARNINGS.get(name, [])
    assert imported.class_names == CLASSES.get(name, imported.class_names)


PREPARED = {
    "deeppcb": "deeppcb-yolo",
    "kolektor-sdd-yoloseg": "kolektor-sdd-yolo",
    "lpbf-coco": "lpbf-metal-yolo",
    "magnetic-tile-masks": "magnetic-tile-yolo",
    "neu-det": "neu-det-yolo",
}


@pytest.mark.parametrize("name", PREPARED)
def test_an_import_equals_the_set_that_others_made_of_it(name: str, tmp_path: Path) -> None:
    imported = import_dataset(shared_data() / "native" / name, SETS[name][0], tmp_path / "set")
    theirs = _rows_by_picture(shared_data() / PREPARED[name])
    ours = _rows_by_picture(imported.folder)
    assert set(ours) <= set(theirs)
    # Their masks were closed without a rim, which pulled some parts by up to two pixels to the edge of their pictures.
    tolerance_px = 2 if name == "magnetic-tile-masks" else 0
    for picture, rows in ours.items():
        np.testing.assert_allclose(rows, theirs[picture], rtol=0, atol=tolerance_px + 0.01)


def _rows_by_picture(folder: Path) -> dict[str, list[list[float]]]:
    """Class id, centre and size in pixels of every box, by the hash of its picture."""
    rows = {}
    for picture in (path for path in (folder / "images").rglob("*") if path.is_file()):
        label = folder / "labels" / picture.relative_to(folder / "images").with_suffix(".txt")
        data = picture.read_bytes()
        width, height = picture_size(data).displayed_wh
        fields = [[float(field) for field in line.split()] for line in label.read_text().splitlines()]
        rows[hashlib.sha256(data).hexdigest()] = sorted(
            [number, x * width, y * height, w * width, h * height] for number, x, y, w, h in fields
        )
    return rows


def test_a_folder_with_two_formats_is_asked_about() -> None:
    with pytest.raises(Exception, match=r"yolo \(data.yaml\), coco \(valid/_annotations.coco.json\)"):
        detect_format(shared_data() / "native" / "garment-coco")
