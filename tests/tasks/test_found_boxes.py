from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data_contracts.detections import Detections
from data_contracts.errors import DatasetError
from made_results import made_pictures
from tasks.evaluation.found_boxes import load_boxes, save_boxes
from training_fakes import boxes


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(made_pictures(seed=1, pictures=9, classes=3)[1], id="several"),
        pytest.param([boxes(), boxes((1, 2, 3, 4, 0.5, 1)), boxes()], id="pictures without boxes"),
        pytest.param([boxes()], id="nothing at all"),
        pytest.param([], id="no pictures"),
    ],
)
def test_boxes_come_back_as_they_were(found: list[Detections], tmp_path: Path):
    save_boxes(found, tmp_path / "boxes.npz")
    again = load_boxes(tmp_path / "boxes.npz")
    assert len(again) == len(found)
    for one, other in zip(found, again, strict=True):
        for field in ("boxes_xyxy_px", "scores", "class_ids"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
            assert getattr(one, field).dtype == getattr(other, field).dtype


@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "text"])
def test_a_damaged_file_is_refused_with_its_name(damage: str, tmp_path: Path):
    path = tmp_path / "boxes.npz"
    save_boxes([boxes((1, 2, 3, 4, 0.5, 1))], path)
    data = path.read_bytes()
    {
        "missing": path.unlink,
        "cut": lambda: path.write_bytes(data[: len(data) // 2]),
        "empty": lambda: path.write_bytes(b""),
        "text": lambda: path.write_text("no boxes"),
    }[damage]()
    with pytest.raises(DatasetError, match=r"boxes\.npz: expected the boxes found"):
        load_boxes(path)
