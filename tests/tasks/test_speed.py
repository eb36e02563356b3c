"""Time and memory of two bundles, in real processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import first_bundle, second_bundle
from data_contracts.errors import EngineError
from serving.bundle import open_bundle
from tasks.gating import speed_process
from tasks.gating.speed import ask_process, measure_costs, measure_speed
from tasks.gating.speed_process import peak_mib, time_in_turns
from tasks.gating.speed_result import SpeedAnswer, SpeedRequest
from tasks.pictures import bundle_detector
from training_fakes import gate_policy


def test_both_are_measured_in_one_process_and_each_alone_for_its_memory(tmp_path: Path):
    ours, theirs = first_bundle(tmp_path / "a"), second_bundle(tmp_path / "b")
    asked: list[SpeedRequest] = []

    def answer(request: SpeedRequest) -> SpeedAnswer:
        asked.append(request)
        return SpeedAnswer(seconds=(0.1, 0.2)[: len(request.bundles)], peak_mib=100.0 * len(asked))

    result = measure_costs(ours, theirs, gate_policy(speed_batches=(4,), speed_rounds=7), answer)
    assert [(request.bundles, request.batch, request.rounds) for request in asked] == [
        ((ours, theirs), 4, 7), ((ours,), 4, 1), ((theirs,), 4, 1),
    ]  # fmt: skip
    (both,) = result.batches
    assert (result.candidate, result.champion, both.batch) == (ours.name, theirs.name, 4)
    assert (both.candidate.seconds, both.champion.seconds) == (0.1, 0.2)
    assert (both.candidate.peak_mib, both.champion.peak_mib) == (200.0, 300.0)


def test_a_real_process_answers(tmp_path: Path):
    bundle = first_bundle(tmp_path)
    answer = ask_process(SpeedRequest(bundles=(bundle, bundle), batch=2, rounds=3))
    assert all(seconds > 0 for seconds in answer.seconds)
    assert len(answer.seconds) == 2
    assert answer.peak_mib is not None
    assert answer.peak_mib > 10


def test_a_busy_machine_slows_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Most calls of the second are held up by something else; its shortest one says what it costs."""
    clock = iter(
        moment
        for number in range(2 + 5)
        for slow in ((0, 9) if number % 2 else (9, 0))  # from either end in turns
        for moment in (0.0, 0.1 if number == 4 else 0.1 + slow)
    )
    monkeypatch.setattr(speed_process, "perf_counter", lambda: next(clock))
    detectors = [bundle_detector(open_bundle(first_bundle(tmp_path)))] * 2
    assert time_in_turns(detectors, 1, 5) == [0.1, 0.1]


def test_what_can_not_be_loaded_is_told_and_counts_as_not_measured(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with pytest.raises(EngineError, match=r"ended with status 1: .*no-such"):
        ask_process(SpeedRequest(bundles=(tmp_path / "no-such",), batch=1, rounds=1))
    assert measure_speed.fn(tmp_path / "no-such", tmp_path / "neither", gate_policy()) is None
    assert "Speed was not measured" in caplog.text


def test_the_peak_is_that_of_the_process_itself():
    assert peak_mib("Name:\tpython\nVmPeak:\t9 kB\nVmHWM:\t  3072 kB\n") == 3.0
    assert peak_mib("") is None
