from __future__ import annotations

import numpy as np
import pytest

from builders import LIMITS, shared_data
from tasks.scan import scan_dataset
from tasks.scanning.near_duplicates import near_pairs

REAL_SETS = {"deeppcb-yolo": 0, "neu-det-yolo": 1, "lpbf-metal-yolo": 0, "kolektor-sdd-yolo": 0}


@pytest.mark.parametrize(("name", "pairs"), REAL_SETS.items(), ids=REAL_SETS)
def test_parts_of_one_product_in_real_sets_are_not_taken_for_copies(name: str, pairs: int) -> None:
    """The one pair of neu-det shows the same scratch twice, 11 pixels apart."""
    assert len(near_pairs(scan_dataset(shared_data() / name, LIMITS).pictures)) == pairs


def test_tiles_under_other_light_in_a_real_set_are_found() -> None:
    """Its names tell which pictures were taken one after the other: `expN` is the exposure, numbers go up."""
    scan = scan_dataset(shared_data() / "magnetic-tile-yolo", LIMITS)
    pairs = near_pairs(scan.pictures)
    numbers = scan.pictures["path"].str.extract(r"num_(\d+)")[0].astype(int).to_numpy()
    apart = np.abs(numbers[pairs["first"]] - numbers[pairs["second"]])
    assert len(pairs) > 100
    assert (apart < 3000).all()
