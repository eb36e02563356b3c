from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from builders import encode, plate, shared_data
from data_contracts.dataset import label_path_of
from data_contracts.labels import LabelBox, boxes_to_pixels, parse_label_bytes
from native_formats import EXPORTERS, Annotated, boxes_of, bring_in
from serving.images import ImageLimits, decode_image
from tasks.datasets.dataset_layout import read_layout
from tasks.importers import FORMATS, detect_format

NAMES = ("scratch", "pin hole", "Kratzer_ä")
HALF_A_PIXEL = 0.5


def _boxes(rng: np.random.Generator, wh: tuple[int, int]) -> tuple[tuple[str, tuple[float, float, float, float]], ...]:
    """Boxes that do not touch, one in each of up to four quarters of the picture."""
    half = np.array(wh) / 2
    boxes = []
    for quarter in range(rng.integers(1, 5)):
        corner = half * (quarter % 2, quarter // 2)
        start = corner + rng.uniform(1, 0.2 * half)
        end = start + rng.uniform(0.3 * half, 0.6 * half)
        boxes.append((NAMES[rng.integers(len(NAMES))], (*start.tolist(), *end.tolist())))
    return tuple(boxes)


def pictures() -> list[Annotated]:
    """Pictures of odd sizes, one without defects, one that EXIF turns."""
    rng = np.random.default_rng(3)
    sizes = {"00001a.png": (97, 61), "00001b.jpg": (64, 203), "00002 c.png": (333, 47)}
    made = [Annotated(name, wh, _boxes(rng, wh)) for name, wh in sizes.items()]
    turned = encode(plate((80, 120)), "jpeg", orientation=6)
    return [*made, Annotated("00003.png", (40, 40)), Annotated("00004.jpg", (120, 80), _boxes(rng, (120, 80)), turned)]


@pytest.mark.parametrize("name", EXPORTERS)
def test_boxes_come_back_within_half_a_pixel(name: str, tmp_path: Path) -> None:
    exported = pictures()
    EXPORTERS[name](tmp_path / "native", exported, NAMES)
    assert detect_format(tmp_path / "native") == name
    before = {path: path.read_bytes() for path in (tmp_path / "native").rglob("*") if path.is_file()}
    imported = bring_in(tmp_path / "native", name, class_names=None if name != "yolo" else NAMES)
    sizes = {
        picture.name.replace(".", "_test.") if name == "deeppcb" else picture.name: picture.wh for picture in exported
    }
    found = boxes_of(imported, sizes)
    for picture, stem in zip(exported, sizes, strict=True):
        _assert_close(found[stem], sorted(picture.boxes))
    assert [finding for finding in imported.findings if finding.severity != "notice"] == []
    assert imported.counts["backgrounds"] == 1
    assert read_layout(imported.folder).class_names == imported.class_names
    assert {path: path.read_bytes() for path in (tmp_path / "native").rglob("*") if path.is_file()} == before


def _assert_close(found: list[object], wanted: list[tuple[str, tuple[float, ...]]]) -> None:
    assert [name for name, _ in found] == [name for name, _ in wanted]  # type: ignore[misc]
    for (_, got), (_, box) in zip(found, wanted, strict=True):  # type: ignore[misc]
        assert np.abs(np.subtract(got, box)).max() <= HALF_A_PIXEL + 1e-3


def test_every_format_is_tested() -> None:
    assert set(EXPORTERS) == set(FORMATS)


@pytest.mark.parametrize("name", [name for name in EXPORTERS if name != "masks"])  # Real boxes overlap.
def test_a_real_set_comes_back(name: str, tmp_path: Path) -> None:
    layout = read_layout(shared_data() / "magnetic-tile-yolo")
    exported = [_real(layout.root, path, layout.class_names) for paths in layout.splits.values() for path in paths[::8]]
    EXPORTERS[name](tmp_path / "native", exported, layout.class_names)
    imported = bring_in(tmp_path / "native", name, class_names=layout.class_names)
    sizes = {
        picture.name.replace(".", "_test.") if name == "deeppcb" else picture.name: picture.wh for picture in exported
    }
    found = boxes_of(imported, sizes)
    for picture, stem in zip(exported, sizes, strict=True):
        _assert_close(found[stem], sorted(picture.boxes))


def _real(root: Path, path: PurePosixPath, names: tuple[str, ...]) -> Annotated:
    data = (root / path).read_bytes()
    height, width = decode_image(data, ImageLimits(2**25, 2**25)).shape[:2]
    rows = parse_label_bytes((root / label_path_of(path)).read_bytes(), len(names))
    boxes = [row for row in rows if isinstance(row, LabelBox)]
    corners = boxes_to_pixels(np.array([box.box_cxcywh for box in boxes]).reshape(-1, 4), (width, height))
    named = [(names[box.class_id], tuple(corner)) for box, corner in zip(boxes, corners.tolist(), strict=True)]
    return Annotated(path.name, (width, height), tuple(named), data)  # type: ignore[arg-type]
