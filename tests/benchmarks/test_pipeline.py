from __future__ import annotations

import json
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.bare_training import BareTimes
from benchmarks.pipeline import Findings, OutOfTime, conclude, deadline
from benchmarks.report import Benchmark, run_benchmark
from benchmarks.retrain_times import RetrainTimes, Span, orchestration_share, spans_of
from deployments.own_stack import environment, free_ports

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("spans", "wall_s", "share"),
    [
        pytest.param([], 10.0, 1.0, id="no stage"),
        pytest.param([("a", 0, 10)], 10.0, 0.0, id="one covers all"),
        pytest.param([("a", 1, 4), ("b", 3, 8)], 10.0, 0.3, id="overlap counts once"),
        pytest.param([("a", 0, 8), ("b", 2, 4)], 10.0, 0.2, id="one within the other"),
        pytest.param([("b", 6, 9), ("a", 0, 4)], 10.0, 0.3, id="in any order"),
        pytest.param([("a", 0, 8), ("promote", 12, 20)], 10.0, 0.2, id="what comes later does not count"),
    ],
)
def test_orchestration_share(spans: list[tuple[str, float, float]], wall_s: float, share: float) -> None:
    assert orchestration_share([Span(*span) for span in spans], wall_s) == pytest.approx(share)


def test_spans_come_from_task_runs() -> None:
    runs = [("evaluate_bundle-0f1", at(5), at(7)), ("evaluate_bundle-9ab", at(8), at(9)), ("waiting-1", None, None)]
    times = RetrainTimes(spans_of(START, runs), 3.0)
    assert times.stages() == {"evaluate_bundle": 3.0}
    assert times.wall_s("evaluate_bundle") == 9.0
    assert times.wall_s("register_bundle") is None


BARE = [BareTimes(12.0, 10.0, 8.0), BareTimes(13.0, 11.0, 8.5)]


def retrain(*, registered: bool) -> RetrainTimes:
    spans = [Span("train_detector", 1.0, 11.0), Span("decide_gates", 11.5, 12.0)]
    return RetrainTimes((*spans, Span("register_bundle", 12.0, 12.6)) if registered else tuple(spans), 4.0)


@pytest.mark.parametrize(
    ("findings", "quick", "overhead", "holds"),
    [
        pytest.param(Findings(BARE, retrain(registered=True), "Registered"), False, 1.2, True, id="full"),
        pytest.param(Findings(BARE, retrain(registered=False), "Rejected"), False, None, False, id="full, rejected"),
        pytest.param(Findings(BARE[:1], retrain(registered=True), "Registered"), True, 1.26, None, id="quick"),
        pytest.param(Findings(BARE[:1], retrain(registered=False), "Rejected"), True, 1.2, None, id="quick, rejected"),
        pytest.param(Findings(BARE[:1]), True, None, None, id="quick, out of time in the pipeline"),
        pytest.param(Findings(), True, None, None, id="quick, out of time at once"),
    ],
)
def test_conclusions(findings: Findings, quick: bool, overhead: float | None, holds: bool | None) -> None:
    measured = conclude(findings, [], quick=quick)
    bars = {bar.name: bar for bar in measured.bars}
    assert bars["overhead_ratio"].limit == 1.35
    assert bars["overhead_ratio"].value == (None if overhead is None else pytest.approx(overhead))
    assert bars["overhead_ratio"].holds is holds
    assert bars["orchestration_share"].limit == 0.10
    assert len(measured.samples["bare"]) == len(findings.bare)


def test_a_slow_pipeline_does_not_hold() -> None:
    measured = conclude(Findings([BareTimes(9.0, 8.0, 7.0)], retrain(registered=True), "Registered"), [], quick=False)
    ratio, share = measured.bars
    assert (ratio.value, ratio.holds) == (pytest.approx(1.575), False)
    assert (share.value, share.holds) == (pytest.approx(1.5 / 12.6), False)


def test_the_report_holds_every_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PASSLINE_HOME", str(tmp_path))
    findings = Findings(BARE, retrain(registered=True), "Registered")
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert run_benchmark(Benchmark("pipeline", lambda quick: conclude(findings, [], quick=quick)), []) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    report = json.loads((tmp_path / "bench" / "pipeline.json").read_text())
    assert [span["stage"] for span in report["samples"]["retrain"]["spans"]] == [
        "train_detector", "decide_gates", "register_bundle",
    ]  # fmt: skip
    assert report["samples"]["bare"][1] == {"process": 13.0, "seconds": 11.0, "train_seconds": 8.5}
    printed = capsys.readouterr().out
    assert "train_detector    10.0     79.4%" in printed
    assert "(between stages)  1.5      11.9%" in printed


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSLINE_HOME", "before")
    monkeypatch.delenv("PASSLINE_MLFLOW_URL", raising=False)
    with environment({"PASSLINE_HOME": "own", "PASSLINE_MLFLOW_URL": "own"}):
        assert (os.environ["PASSLINE_HOME"], os.environ["PASSLINE_MLFLOW_URL"]) == ("own", "own")
    assert os.environ["PASSLINE_HOME"] == "before"
    assert "PASSLINE_MLFLOW_URL" not in os.environ


def test_ports_differ() -> None:
    assert len(set(free_ports(5))) == 5


def test_a_deadline_rings_and_is_taken_back() -> None:
    with pytest.raises(OutOfTime), deadline(0.05):
        time.sleep(20)
    with deadline(0.05):
        pass
    time.sleep(0.1)
