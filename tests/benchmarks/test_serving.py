from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import builders
from benchmarks.limit import InProcess, Layout, layouts
from benchmarks.load import LoadResult
from benchmarks.pictures import make_jpegs, make_picture
from benchmarks.report import Bar
from benchmarks.rounds import Cell, Rounds, Subject, rotated, run_rounds
from benchmarks.serving import PARTS, _take_parts
from benchmarks.serving_bench import AS_INSTALLED
from benchmarks.serving_report import Findings, Open, conclude
from serving.bundle import open_bundle
from serving.detector import open_detector
from serving.images import decode_image


def load(rate: float, count: int = 300, *, clients: int = 16, p50_s: float = 0.1, wrong: int = 0) -> LoadResult:
    """Answers at an even rate; one in fifty takes twice as long."""
    times = np.arange(1, count + 1) / rate
    latencies = np.where(np.arange(count) % 50 == 0, 2 * p50_s, p50_s)
    return LoadResult(latencies, times, {200: count}, wrong, float(times[-1]), clients, 0.01 * times[-1])


def rounds(rates: dict[str, list[float]], count: int = 300) -> Rounds:
    return Rounds({name: [Cell(load(rate, count), 0.3) for rate in of] for name, of in rates.items()})


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    """The machine is twice as slow in the second round: both are, and the ratio holds."""
    measured = rounds({"limit": [20.0, 10.0, 21.0], "passline": [19.0, 9.5, 15.0], "absent": []})
    assert measured.ratio("passline", "limit") == pytest.approx(0.95)
    assert measured.ratio("passline", "absent") is None
    assert measured.requests("passline") == 900
    assert measured.throughput_per_s("limit") == pytest.approx(20.0)
    assert measured.cpu_ms("limit") == pytest.approx(1.0)


def test_what_decides_a_ratio_near_one() -> None:
    assert rounds({"limit": [20.0] * 7}, 300).enough("limit")
    assert not rounds({"limit": [20.0] * 6}, 400).enough("limit"), "six rounds"
    assert not rounds({"limit": [20.0] * 7}, 200).enough("limit"), "1,400 requests"
    assert not rounds({"limit": [20.0] * 7}).enough("limit", "passline"), "not measured"


def test_each_round_begins_with_another_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.rounds.DRAIN_S", 0.0)
    asked: list[tuple[str, int]] = []

    def subject(name: str, requests: int) -> Subject:
        def run(count: int) -> LoadResult:
            asked.append((name, count))
            return load(20.0, count)

        return Subject(name, requests, run)

    subjects = [subject("a", 40), subject("b", 20)]
    found = run_rounds(subjects, 2, lambda _: None)
    warm_up, measured = asked[:2], asked[2:]
    assert warm_up == [("a", 32), ("b", 20)]
    assert measured == [("a", 40), ("b", 20), ("b", 20), ("a", 40)]
    assert (found.requests("a"), found.requests("b")) == (80, 40)
    assert [one.name for one in rotated(subjects, 3)] == ["b", "a"]


def findings() -> Findings:
    """A full run in which everything holds."""
    rates = {"limit": 20.0, "passline": 19.5, AS_INSTALLED: 24.0, "fastapi-ort": 19.7, "fastapi-ultralytics": 6.0}
    share = rounds({name: [rate] * 7 for name, rate in rates.items()})
    near = {"limit": [Cell(load(10.0, 100, p50_s=0.1), 0.1)], "passline": [Cell(load(10.0, 100, p50_s=0.101), 0.1)]}
    found = Findings(shares={640: share, 160: share}, lone={640: Rounds(near), 160: Rounds(near)})
    found.open[640] = Open(12.0, load(12.0, 1400, clients=0, p50_s=0.09), load(12.0, 700, clients=0, p50_s=0.09))
    found.layouts = {640: Layout(1, 2, 2), 160: Layout(1, 2, 2)}
    return found


def bars(found: Findings, *, quick: bool = False) -> dict[str, Bar]:
    return {bar.name: bar for bar in conclude(found, quick=quick).bars}


def test_bars_of_a_full_run() -> None:
    got = bars(findings())
    assert {name: bar.holds for name, bar in got.items()} == {
        "share_640_c16": True,
        "share_160_c16": True,
        "extra_p50_c1_ms": True,
        "p99_over_p50_c16": False,
        "takt_p99_ms": True,
        "vs_fastapi_ort": True,
        "vs_ultralytics": True,
        "vs_fastapi_ort_640": True,
        "vs_ultralytics_640": True,
        "failed": True,
    }
    assert got["share_640_c16"].value == pytest.approx(0.975)
    assert got["extra_p50_c1_ms"].value == pytest.approx(1.0)
    assert got["p99_over_p50_c16"].value == pytest.approx(2.0)
    assert got["takt_p99_ms"].value == pytest.approx(180.0)
    assert got["vs_ultralytics"].value == pytest.approx(4.0)
    assert got["vs_fastapi_ort"].value == pytest.approx(24.0 / 19.7)


def test_each_model_is_compared_with_its_peers() -> None:
    found = findings()
    rates = {"limit": 200.0, "passline": 150.0, AS_INSTALLED: 150.0, "fastapi-ort": 160.0}
    found.shares[160] = rounds({name: [rate] * 7 for name, rate in rates.items()})
    got = bars(found)
    assert (got["share_160_c16"].holds, got["vs_fastapi_ort"].holds) == (False, False)
    assert got["vs_fastapi_ort"].value == pytest.approx(0.9375)
    assert got["vs_fastapi_ort_640"].holds is True


def test_the_worse_model_decides() -> None:
    found = findings()
    slow = {"limit": [Cell(load(10.0, 100, p50_s=0.1), 0.1)], "passline": [Cell(load(10.0, 100, p50_s=0.104), 0.1)]}
    found.lone[160] = Rounds(slow)
    assert bars(found)["extra_p50_c1_ms"].value == pytest.approx(4.0)


def test_a_quick_run_decides_nothing_but_failures() -> None:
    got = bars(findings(), quick=True)
    assert {name for name, bar in got.items() if bar.holds is not None} == {"failed"}
    assert got["share_640_c16"].value == pytest.approx(0.975)


def test_a_part_leaves_the_other_bars_open() -> None:
    found = findings()
    found.shares, found.lone = {}, {}
    got = bars(found)
    assert {name for name, bar in got.items() if bar.holds is not None} == {"takt_p99_ms", "failed"}
    assert got["vs_fastapi_ort"].value is None


def test_one_wrong_answer_is_seen() -> None:
    found = findings()
    found.open[640] = Open(12.0, load(12.0, wrong=1), load(12.0))
    report = conclude(found, quick=False)
    assert {bar.name: bar for bar in report.bars}["failed"].holds is False
    assert any("FAILED OR WRONG" in cell for table in report.tables for row in table.rows for cell in row)


def test_parts() -> None:
    assert _take_parts(["--json", "f"]) == (PARTS, ["--json", "f"])
    assert _take_parts(["--only", "takt", "--quick"]) == (("takt",), ["--quick"])
    with pytest.raises(SystemExit):
        _take_parts(["--only", "takt,nonsense"])


def test_layouts_of_one_core_and_of_four() -> None:
    assert {(one.threads, one.streams) for one in layouts(4)} == {(1, 4), (4, 1)}
    assert {(one.threads, one.streams) for one in layouts(1)} == {(1, 1)}


def test_the_limit_finds_what_the_detector_finds(tmp_path: Path) -> None:
    bundle = builders.first_bundle(tmp_path)
    red = builders.encode(builders.plate((64, 48), ((0, 0, 32, 24), builders.RED)))
    grey = builders.encode(builders.plate((64, 48)))
    limit = InProcess(bundle)
    result = limit.run(Layout(1, 2, 2), [red, grey], 20)
    assert (result.count, result.failed) == (20, 0)
    first, second = limit.expected([red, grey])
    assert (len(first) > 0, len(second)) == (True, 0)
    opened = open_bundle(bundle)
    (found,) = open_detector(opened, builders.CPU).detect([decode_image(red, builders.LIMITS)], 0.25)
    assert first[:, :4].tolist() == pytest.approx(found.boxes_xyxy_px)
    assert first[:, 5].tolist() == found.class_ids.tolist()


def test_pictures_are_the_same_each_time_and_differ_from_each_other() -> None:
    assert make_jpegs(3, 64) == make_jpegs(3, 64)
    assert len(set(make_jpegs(3, 64))) == 3
    assert make_picture(0, 64).shape == (64, 64, 3)
