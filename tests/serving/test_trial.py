"""Trials in a process of their own: what they tell, and what a crash or a hang is turned into."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import builders
from data_contracts.errors import BundleError, EngineError, Problem
from data_contracts.tuning import EngineChoice
from fakes import FakeEngine
from serving import trial, tune_process
from serving.detector import Detector
from serving.idle import step_back
from serving.trial import TrialRequest, first_problem, run_trial
from serving.tune_process import answer_to, measure

ONE = EngineChoice(provider="cpu", precision="fp32", threads=1, streams=1)
TWO = EngineChoice(provider="cpu", precision="fp32", threads=1, streams=2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return builders.probed_bundle(tmp_path_factory.mktemp("bundle"))


def test_a_process_measures_the_real_engine(made: tuple[Path, Path]) -> None:
    report = run_trial(TrialRequest(what="measure", bundle=made[0], engines=(ONE, TWO), measure_s=0.05), 60)
    assert [one.engine for one in report.measured] == [ONE, TWO]
    assert all(one.pictures_per_s > 0 and one.call_ms > 0 for one in report.measured)


def test_a_process_judges_the_real_engine(made: tuple[Path, Path]) -> None:
    report = run_trial(TrialRequest(what="judge", bundle=made[0], engines=(TWO,), probe_set=made[1]), 60)
    assert report.passed
    assert report.words.startswith("0 of 3 verdicts flipped, allowed 0; 0 of ")


def test_another_answer_is_judged_by_the_probe_set(made: tuple[Path, Path], tmp_path: Path) -> None:
    weaker = builders.make_probe_set(tmp_path, model=builders.colour_stub(gain=0.2))
    report = answer_to(TrialRequest(what="judge", bundle=made[0], engines=(ONE,), probe_set=weaker))
    assert not report.passed
    assert report.words.startswith("2 of 3 verdicts flipped, allowed 0")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engines": (ONE.model_copy(update={"precision": "bf16"}),)}, "bf16"),
        ({"bundle": Path("/nowhere")}, "no folder"),
        ({"probe_set": Path("/nowhere")}, "no folder"),
    ],
    ids=["engine", "bundle", "probe set"],
)
def test_what_passline_refuses_is_told_in_words(
    made: tuple[Path, Path], changes: dict[str, object], words: str
) -> None:
    fields: dict[str, object] = {"what": "judge", "bundle": made[0], "engines": (ONE,), "probe_set": made[1]}
    assert words in answer_to(TrialRequest.model_validate(fields | changes)).failure


def test_without_a_probe_set_nothing_passes(made: tuple[Path, Path]) -> None:
    report = answer_to(TrialRequest(what="judge", bundle=made[0], engines=(ONE,)))
    assert (report.passed, report.words) == (False, "no probe set to judge it by")


def test_the_list_names_engines_of_the_providers_alone(made: tuple[Path, Path]) -> None:
    listed = answer_to(TrialRequest(what="list", bundle=made[0], providers=("cpu",))).listed
    reasons = {one.precision: one.reason for one in listed if one.provider == "cpu"}
    assert reasons["fp32"] == ""
    assert "model.int8.onnx" in reasons["int8"]
    assert {one.provider for one in listed} == {"cpu"}


def test_streams_call_at_once_and_each_at_least_twice() -> None:
    class Meeting(FakeEngine):
        """Answers only when two callers are inside."""

        barrier = threading.Barrier(2, timeout=10)

        def run(self, batch):
            self.barrier.wait()
            return super().run(batch)

    engine = Meeting()
    rate, call_s = measure(Detector(builders.model_spec(), engine), callers=2, seconds=1e-6)
    assert rate > 0
    assert call_s > 0
    assert engine.sizes == [1] * 6


ENDS = {
    "crash": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 20, "died of SIGSEGV"),
    "error": ("raise RuntimeError('no such kernel')", 20, "ended with status 1: RuntimeError: no such kernel"),
    "hang": ("import time; time.sleep(60)", 0.5, "no result within 0.5 s"),
    "chatter": ("print('welcome')", 20, "gave no report: no message"),
    "quiet end": ("", 20, "gave no report"),
    "refusal": ('print(\'{"failure": "needs AMX"}\')', 20, "needs AMX"),
}


@pytest.mark.parametrize(("code", "limit_s", "words"), ENDS.values(), ids=ENDS)
def test_however_a_trial_ends_there_is_a_reason(
    code: str, limit_s: float, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "played_trial.py").write_text(code)
    monkeypatch.setattr(trial, "MODULE", "played_trial")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(EngineError, match=words):
        run_trial(TrialRequest(what="measure", bundle=tmp_path, engines=(ONE,)), limit_s)


def test_a_trial_beside_live_traffic_has_the_lowest_priority_from_its_first_import_on(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the threads that it starts; this process keeps its own."""
    told = tmp_path / "told"
    code = f"""
import os, threading
def tell():
    with open({str(told)!r}, "a") as file:
        print(os.sched_getscheduler(0) == os.SCHED_IDLE or os.nice(0) == 19, file=file)
tell()
thread = threading.Thread(target=tell)
thread.start()
thread.join()
print('{{}}')
"""
    (tmp_path / "played_trial.py").write_text(code)
    monkeypatch.setattr(trial, "MODULE", "played_trial")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    before = os.sched_getscheduler(0), os.nice(0)
    for idle in (True, False):
        run_trial(TrialRequest(what="measure", bundle=tmp_path, engines=(ONE,), idle=idle), 20)
    assert told.read_text().split() == ["True", "True", "False", "False"]
    assert (os.sched_getscheduler(0), os.nice(0)) == before


def test_a_trial_with_the_lowest_priority_judges_the_real_engine(made: tuple[Path, Path]) -> None:
    request = TrialRequest(what="judge", bundle=made[0], engines=(ONE,), probe_set=made[1], idle=True)
    assert run_trial(request, 120).passed


def test_where_the_scheduler_has_no_idle_class_niceness_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    asked: list[int] = []
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(os, "nice", asked.append)
    step_back()
    assert asked == [19]


def test_what_the_probe_set_said_is_told_where_the_golden_pictures_fail_too(
    made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(*_: object) -> None:
        raise BundleError(Problem("golden/0.png", "a box", "nothing", "Do not serve it."))

    monkeypatch.setattr(tune_process, "check_golden", differs)
    report = answer_to(TrialRequest(what="judge", bundle=made[0], engines=(ONE,), probe_set=made[1]))
    assert not report.passed
    assert report.words.startswith("0 of 3 verdicts flipped, allowed 0; 0 of ")
    assert "; golden pictures: golden/0.png: expected a box, got nothing" in report.words


def test_of_many_problems_the_first_is_told() -> None:
    problems = [Problem(f"golden/{number}.png", "a box", "none", "Mend it.") for number in range(3)]
    assert first_problem(BundleError(*problems)) == f"{problems[0]} (and 2 more)"
    assert first_problem(EngineError("no")) == "no"
