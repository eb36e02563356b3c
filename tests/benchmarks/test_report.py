from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path

import pytest

from benchmarks.machine import cpu_model, versions_of
from benchmarks.report import Bar, Benchmark, Measured, Table, at_least, at_most, bar_table, format_table, run_benchmark
from data_contracts.errors import OutsideSystemError


@pytest.mark.parametrize(
    ("bar", "value", "holds"),
    [
        pytest.param(at_most("r", 1.35, 1.35, decided=True), 1.35, True, id="at most: on the limit"),
        pytest.param(at_most("r", 1.36, 1.35, decided=True), 1.36, False, id="at most: over it"),
        pytest.param(at_least("r", 0.8, 0.8, decided=True), 0.8, True, id="at least: on the limit"),
        pytest.param(at_least("r", 0.79, 0.8, decided=True), 0.79, False, id="at least: under it"),
        pytest.param(at_most("r", 9.0, 1.35, decided=False), 9.0, None, id="not decided keeps its value"),
        pytest.param(at_most("r", None, 1.35, decided=False), None, None, id="not decided, nothing measured"),
        pytest.param(at_most("r", None, 1.35, decided=True), None, False, id="decided without a number"),
        pytest.param(at_most("r", math.nan, 1.35, decided=True), None, False, id="not a number"),
        pytest.param(at_least("r", math.inf, 1.0, decided=True), None, False, id="infinite"),
    ],
)
def test_bars(bar: Bar, value: float | None, holds: bool | None) -> None:
    assert (bar.value, bar.holds) == (value, holds)


def measured(*bars: Bar) -> Measured:
    return Measured(
        settings={"rounds": 2},
        samples={"seconds": (1.0, 2.0)},
        bars=bars,
        tables=(Table(("stage", "s"), (("train", "2.0"),)),),
        notes=("two rounds only",),
    )


def run(benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setenv("PASSLINE_HOME", str(tmp_path / "home"))
    before = signal.getsignal(signal.SIGTERM)
    try:
        return run_benchmark(benchmark, arguments)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_full_run_writes_both_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = at_most("ratio", 2.0, 1.35, decided=True)
    benchmark = Benchmark("sums", lambda quick: measured(bar), packages=("pytest",), peers=("no-such-peer",))
    assert run(benchmark, tmp_path, monkeypatch, "--json", str(tmp_path / "out" / "r.json")) == 0
    report = json.loads((tmp_path / "out" / "r.json").read_text())
    assert json.loads((tmp_path / "home" / "bench" / "sums.json").read_text()) == report
    assert report["name"] == "sums"
    assert report["bars"] == [{"name": "ratio", "value": 2.0, "limit": 1.35, "holds": False}]
    assert report["samples"] == {"seconds": [1.0, 2.0]}
    assert report["settings"] == {"rounds": 2}
    assert report["missing"] == ["no-such-peer"]
    assert report["versions"] == {"pytest": pytest.__version__, "no-such-peer": "missing"}
    assert report["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert len(report["machine"]["load_before"]) == len(report["machine"]["load_after"]) == 3
    printed = capsys.readouterr().out
    for words in ("DOES NOT HOLD", "no-such-peer is not installed", "two rounds only", "stage  s"):
        assert words in printed


def test_a_quick_run_leaves_the_full_result_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def measure(quick: bool) -> Measured:
        asked.append(quick)
        return measured(at_most("ratio", 2.0, 1.35, decided=not quick))

    target = tmp_path / "q.json"
    assert run(Benchmark("sums", measure), tmp_path, monkeypatch, "--quick", "--json", str(target)) == 0
    assert asked == [True]
    assert json.loads(target.read_text())["bars"][0]["holds"] is None
    assert not (tmp_path / "home").exists()


def failing(quick: bool) -> Measured:
    raise OutsideSystemError("the server is not there")


def terminated(quick: bool) -> Measured:
    os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError("SIGTERM came to nothing")


@pytest.mark.parametrize(
    ("measure", "status", "words"),
    [
        pytest.param(failing, 2, "could not measure: the server is not there", id="could not measure"),
        pytest.param(terminated, 130, "stopped", id="SIGTERM unwinds like Ctrl-C"),
    ],
)
def test_what_was_not_measured_is_not_written(
    measure: object,
    status: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(Benchmark("sums", measure), tmp_path, monkeypatch) == status  # type: ignore[arg-type]
    assert words in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_tables_are_aligned() -> None:
    text = format_table(bar_table([at_most("ratio", None, 1.35, decided=False)]))
    assert text.splitlines() == ["bar    value  limit", "ratio  none   1.35   not decided here"]


def test_a_machine_without_a_model_name() -> None:
    assert cpu_model("processor : 0\nBogoMIPS : 100\n") is None
    assert versions_of(["no-such-package"], "missing") == {"no-such-package": "missing"}
