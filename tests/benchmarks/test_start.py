from __future__ import annotations

import pytest

from benchmarks.start import Kind, Start, conclude


def kind(name: str, *ready_s: float, loaded_mb: float = 300.0) -> Kind:
    starts = tuple(Start(seconds, 1.5, 250.0) for seconds in ready_s)
    return Kind(name, Start(9.0, 8.0, 260.0), starts, loaded_mb, {"0 worker": loaded_mb})


@pytest.mark.parametrize(
    ("ort", "quick", "holds"),
    [
        pytest.param(kind("ort", 2.0, 3.9, 9.0), False, (True, True), id="the median start counts, not the first"),
        pytest.param(kind("ort", 4.1, 4.2, 4.3, loaded_mb=351.0), False, (False, False), id="over both"),
        pytest.param(kind("ort", 2.0), True, (None, None), id="quick"),
    ],
)
def test_bars_are_those_of_the_ort_engine(ort: Kind, quick: bool, holds: tuple[bool | None, bool | None]) -> None:
    report = conclude([ort, kind("default", 20.0, loaded_mb=900.0)], 640, quick=quick)
    assert [bar.name for bar in report.bars] == ["start_to_ready_s", "pss_mb"]
    assert tuple(bar.holds for bar in report.bars) == holds
    assert report.bars[0].value == ort.ready_s
    assert report.samples["default"]["ready_s"] == 20.0
