from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import validate
from benchmarks.made_dataset import made_rows, write_dataset
from benchmarks.pictures import make_jpegs
from benchmarks.validate import LIMITS, Cost, Findings, Near, conclude, search
from tasks.scan import scan_dataset

SMALL, LARGE = Cost(5_000, 4.0, 6.0, 0.4, 400.0), Cost(20_000, 14.0, 26.0, 1.6, 500.0)
MOST = Cost(100_000, 70.0, 130.0, 8.0, 900.0)
NEAR = Near(100_000, 30.0, 1000, 990, 480.0)
GOOD = Findings(pictures=1500, first_s=(4.0, 5.0, 90.0), costs=(SMALL, LARGE, MOST), near=NEAR)
BARS = {
    "all hold": (GOOD, (300.0, 12_500.0, 30.0, 900.0, 4.0), (True,) * 5),
    "slow": (
        replace(GOOD, first_s=(5.1,), near=replace(NEAR, seconds=61.0)),
        (1500 / 5.1, 12_500.0, 61.0, 900.0, 4.0), (False, True, False, True, True),
    ),
    "large": (
        replace(GOOD, near=replace(NEAR, peak_rss_mib=1100.0)),
        (300.0, 12_500.0, 30.0, 1100.0, 4.0), (True, True, True, False, True),
    ),
    "worse than linear": (
        replace(GOOD, costs=(SMALL, replace(LARGE, rules_s=40.0, rescan_s=2.5), MOST)),
        (300.0, 8_000.0, 30.0, 900.0, 5.4), (True, False, True, True, False),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("found", "values", "holds"), BARS.values(), ids=BARS)
def test_bars(
    found: Findings, values: tuple[float, ...], holds: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "threads_from_quota", lambda _: 2)
    bars = conclude(found, quick=False).bars
    assert [bar.name for bar in bars] == ["scan_per_s", "rescan_per_s", "near_s", "peak_rss_mib", "linear_ratio"]
    assert tuple(bar.value for bar in bars) == pytest.approx(values)
    assert tuple(bar.holds for bar in bars) == holds


def test_what_cannot_be_decided_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "threads_from_quota", lambda _: 16)
    assert {bar.holds for bar in conclude(GOOD, quick=True).bars} == {None}
    assert [bar.holds for bar in conclude(GOOD, quick=False).bars] == [None, True, True, True, True]


def test_made_datasets_have_distinct_pictures_and_sound_labels(tmp_path: Path) -> None:
    scan = scan_dataset(write_dataset(tmp_path / "d", make_jpegs(2, 64), 10), LIMITS)
    assert scan.pictures["sha256"].nunique() == 10
    assert scan.pictures["rule"].isna().all()
    assert scan.pictures["split"].value_counts().to_dict() == {"train": 8, "val": 2}
    assert scan.labels["class_id"].value_counts().to_dict().keys() == {0, 1, 2}
    assert scan.labels["rule"].isna().all()


def test_made_rows_hold_the_copies_that_are_searched_for() -> None:
    rows, copies = made_rows(300, 0.5)
    assert (len(rows), copies) == (300, 3)
    near = search(300)
    assert (near.copies, near.found) == (3, 3)
