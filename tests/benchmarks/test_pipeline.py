from __future__ import annotations

import json
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prefect import Task

from benchmarks.bare_training import BareTimes
from benchmarks.pipeline import OutOfTime, deadline
from benchmarks.pipeline_findings import Findings, conclude, orchestration_share
from benchmarks.report import Benchmark, run_benchmark
from benchmarks.retrain_times import STAGE_OF, RetrainTimes, Span, spans_of, task_name, uncovered_s
from deployments.own_stack import environment, free_ports
from flows import retrain as retrain_flow

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("spans", "left"),
    [
        pytest.param([], 10.0, id="no span"),
        pytest.param([("a", 0, 10)], 0.0, id="one covers all"),
        pytest.param([("a", 1, 4), ("b", 3, 8)], 3.0, id="overlap counts once"),
        pytest.param([("a", 0, 8), ("b", 2, 4)], 2.0, id="one within the other"),
        pytest.param([("b", 6, 9), ("a", 0, 4)], 3.0, id="in any order"),
        pytest.param([("a", 0, 8), ("promote", 12, 20)], 2.0, id="what comes later does not count"),
    ],
)
def test_uncovered_seconds(spans: list[tuple[str, float, float]], left: float) -> None:
    assert uncovered_s([Span(*span) for span in spans], 10.0) == pytest.approx(left)


def test_spans_come_from_task_runs() -> None:
    runs = [("evaluate_bundle-0f1", at(5), at(7)), ("evaluate_bundle-9ab", at(8), at(9)), ("waiting-1", None, None)]
    times = RetrainTimes(spans_of(START, runs), 3.0, 12.0)
    assert times.tasks() == {"evaluate_bundle": 3.0}
    assert times.wall_s("evaluate_bundle") == 9.0
    assert times.wall_s("register_bundle") is None


def test_every_named_task_is_one_that_retrain_runs() -> None:
    tasks = {task_name(f"{one.name}-0") for one in vars(retrain_flow).values() if isinstance(one, Task)}
    assert set(STAGE_OF) <= tasks


BARE = [BareTimes(12.0, 10.0, 8.0), BareTimes(13.0, 11.0, 8.5)]


def retrain(*, registered: bool, scale: float = 1.0) -> RetrainTimes:
    """One second before the training, half a second after it; of the last 0.6 s nothing is outside when registered."""
    spans = [Span("preflight", 0.2, 1.0), Span("train_detector", 1.0, 1 + 10 * scale)]
    end = 1.5 + 10 * scale
    spans.append(Span("decide_gates", end, end + 0.5))
    if registered:
        spans.append(Span("register_bundle", end + 0.5, end + 1.1))
    return RetrainTimes(tuple(spans), 4.0, end + 1.1)


REGISTERED, REJECTED = retrain(registered=True), retrain(registered=False)
LONG = Findings([BareTimes(302.0, 300.0, 298.0)], retrain(registered=True, scale=30.0), "Registered", 100)


@pytest.mark.parametrize(
    ("usual", "long", "overhead", "share", "decided"),
    [
        pytest.param(Findings(BARE, REGISTERED, "Registered"), LONG, 1.2, 5.5 / 300, (True, True), id="full"),
        pytest.param(Findings(BARE, REJECTED, "Rejected"), LONG, None, 5.5 / 300, (False, True), id="full, rejected"),
        pytest.param(
            Findings(BARE, REGISTERED, "Registered"), Findings(LONG.bare), 1.2, None, (True, False), id="no long run"
        ),
        pytest.param(Findings(BARE[:1], REGISTERED, ""), None, 1.26, 0.55, (None, None), id="quick"),
        pytest.param(Findings(BARE[:1], REJECTED, ""), None, 1.2, 0.61, (None, None), id="quick, rejected"),
        pytest.param(Findings(BARE[:1]), None, None, None, (None, None), id="quick, out of time in the pipeline"),
        pytest.param(Findings(), None, None, None, (None, None), id="quick, out of time at once"),
    ],
)
def test_conclusions(usual, long, overhead, share, decided) -> None:
    ratio, orchestration = conclude(usual, long, []).bars
    assert (ratio.name, ratio.limit, orchestration.name, orchestration.limit) == (
        "overhead_ratio", 1.35, "orchestration_share", 0.10,
    )  # fmt: skip
    assert ratio.value == (None if overhead is None else pytest.approx(overhead))
    assert orchestration.value == (None if share is None else pytest.approx(share))
    assert (ratio.holds, orchestration.holds) == decided


def test_a_slow_pipeline_does_not_hold() -> None:
    slow = Findings([BareTimes(9.0, 8.0, 7.0)], REGISTERED, "Registered")
    ratio, share = conclude(slow, slow, []).bars
    assert (ratio.value, ratio.holds) == (pytest.approx(1.575), False)
    assert (share.value, share.holds) == (pytest.approx(5.5 / 8), False)


def test_a_task_without_a_named_stage_counts_as_outside() -> None:
    assert REGISTERED.outside_s() == pytest.approx(4.0 + 1.0 + 0.5)
    assert orchestration_share(Findings(BARE[:1], REGISTERED)) == pytest.approx(0.55)


def test_the_report_holds_every_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PASSLINE_HOME", str(tmp_path))
    findings = Findings(BARE, REGISTERED, "Registered")
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert run_benchmark(Benchmark("pipeline", lambda quick: conclude(findings, findings, [])), []) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    report = json.loads((tmp_path / "bench" / "pipeline.json").read_text())
    assert [span["task"] for span in report["samples"]["usual"]["retrain"]["spans"]] == [
        "preflight", "train_detector", "decide_gates", "register_bundle",
    ]  # fmt: skip
    assert report["samples"]["usual"]["bare"][1] == {"process": 13.0, "seconds": 11.0, "train_seconds": 8.5}
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "train_detector train 10.0 60.2% 95.2%" in printed
    assert "preflight (outside) 0.8 4.8% 7.6%" in printed
    assert "waiting, process start (outside) 4.0 24.1% 38.1%" in printed
    assert "between tasks (outside) 0.7 4.2% 6.7%" in printed


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
