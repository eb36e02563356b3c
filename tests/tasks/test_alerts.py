"""What people are told of a job that did not end well, and when it goes on without them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType

from data_contracts.errors import JobError
from deployments.cli_resume import run_id_of
from tasks.alerts import ALARMING, AttendConfig, EndedRun, compose_alert, goes_on
from tasks.attending import training_left
from tasks.resuming import count_resumes, resume_problem, was_cancelled
from tasks.run_folder import attempt

RUN_ID = UUID("8eda03a4-9a33-4d6f-919a-ef2adb7d98c2")
ENDED = EndedRun(RUN_ID, UUID(int=1), "calm-owl", "Crashed", "no sign of life for 120 s.", 0, 7, 40)
CONFIG = AttendConfig(max_resumes=2, resume_wait_s=30)
COMMAND = f"passline resume {RUN_ID}"


@pytest.mark.parametrize(
    ("state", "resumes", "by_itself"),
    [
        ("Crashed", 0, True),
        ("Crashed", 1, True),
        ("Crashed", 2, False),
        ("Interrupted", 0, True),
        ("Failed", 0, False),
        ("TimedOut", 0, False),
    ],
)
def test_a_run_goes_on_by_itself_a_bounded_number_of_times(state: str, resumes: int, by_itself: bool) -> None:
    assert goes_on(replace(ENDED, state=state, resumes=resumes), CONFIG) is by_itself
    assert not goes_on(replace(ENDED, state=state), CONFIG.model_copy(update={"max_resumes": 0}))


@pytest.mark.parametrize("state", ALARMING)
@pytest.mark.parametrize(("last_epoch", "words"), [(7, "last epoch 7 of 40"), (None, "no epoch was finished")])
def test_an_alert_names_cause_last_epoch_and_how_to_go_on(state: str, last_epoch: int | None, words: str) -> None:
    alert = compose_alert(replace(ENDED, state=state, last_epoch=last_epoch, resumes=2), CONFIG, "http://pages")
    of_the_job = last_epoch is None and state in ("Failed", "Refused")
    how = "Submit the mended job; if the job itself is right, resume with" if of_the_job else "Resume with"
    assert alert.text == f"retrain calm-owl: {state}; {words}. no sign of life for 120 s. {how}: {COMMAND}"
    assert (alert.resume, alert.resumes_by_itself, alert.url) == (
        COMMAND,
        False,
        f"http://pages/runs/flow-run/{RUN_ID}",
    )


def test_an_alert_says_that_the_run_goes_on_by_itself() -> None:
    alert = compose_alert(replace(ENDED, resumes=1), CONFIG, "http://pages")
    assert alert.text.endswith("It starts again in 30 s, resume 2 of 2.")
    assert alert.resumes_by_itself


def test_an_alert_says_why_a_run_did_not_go_on_by_itself() -> None:
    alert = compose_alert(ENDED, CONFIG, "http://pages", refusal="Its folder is gone.")
    assert alert.text.endswith(f"Its folder is gone. Resume with: {COMMAND}")
    assert not alert.resumes_by_itself


def test_a_cause_that_says_how_to_resume_is_not_repeated() -> None:
    cause = f"stuck; last epoch 7 of 40;\n resume with: {COMMAND}"
    alert = compose_alert(replace(ENDED, state="Failed", cause=cause), CONFIG, "http://pages")
    assert alert.text.count(COMMAND) == 1
    assert "\n" not in alert.text


def test_resumes_are_counted_from_the_states_of_the_run() -> None:
    names = ["Scheduled", "Pending", "Running", "Crashed", "AwaitingRetry", "Running", "Crashed", "AwaitingRetry"]
    assert count_resumes([State(type=StateType.SCHEDULED, name=name) for name in names]) == 2


@pytest.mark.parametrize(
    ("kinds", "cancelled"),
    [
        (["RUNNING", "CANCELLING", "CRASHED"], True),
        (["RUNNING", "CRASHED"], False),
        (["CANCELLING", "CANCELLED", "SCHEDULED", "RUNNING", "CRASHED"], False),
    ],
)
def test_a_run_whose_end_was_asked_for_counts_as_cancelled(kinds: list[str], cancelled: bool) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    states = [State(type=StateType(kind), timestamp=at + timedelta(seconds=n)) for n, kind in enumerate(kinds)]
    assert was_cancelled(states[::-1]) is cancelled


def run_in(kind: StateType, name: str, run_count: int = 1) -> FlowRun:
    return FlowRun(
        id=RUN_ID, flow_id=UUID(int=1), name="calm-owl", state=State(type=kind, name=name), run_count=run_count
    )


@pytest.mark.parametrize(
    ("case", "kind", "name", "words"),
    [
        ("finished", StateType.COMPLETED, "Promoted", "state Promoted. Submit its job anew"),
        ("rejected", StateType.COMPLETED, "Rejected", "state Rejected. Submit its job anew"),
        ("at work", StateType.RUNNING, "Running", "state Running. Wait for its end"),
        ("waiting", StateType.SCHEDULED, "AwaitingRetry", "state AwaitingRetry. Wait for its end"),
    ],
)
def test_a_run_that_cannot_be_taken_up_says_why(
    case: str, kind: StateType, name: str, words: str, tmp_path: Path
) -> None:
    assert words in str(resume_problem(run_in(kind, name), "retrain", tmp_path))


@pytest.mark.parametrize("name", ["Failed", "Crashed", "Interrupted"])
def test_a_run_that_did_not_complete_can_be_taken_up(name: str, tmp_path: Path) -> None:
    assert resume_problem(run_in(StateType.FAILED, name), "retrain", tmp_path) is None


def test_a_run_of_something_else_is_named(tmp_path: Path) -> None:
    assert "a run of retrain, got one of redeploy" in str(
        resume_problem(run_in(StateType.FAILED, "Failed"), "redeploy", tmp_path)
    )


def test_a_run_without_its_folder_starts_anew_only_when_it_never_began(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert "no folder. Submit its job anew" in str(
        resume_problem(run_in(StateType.CRASHED, "Crashed"), "retrain", gone)
    )
    assert resume_problem(run_in(StateType.CRASHED, "Crashed", run_count=0), "retrain", gone) is None


def test_a_run_whose_process_lives_is_left_alone(tmp_path: Path) -> None:
    with attempt(tmp_path):
        found = resume_problem(run_in(StateType.CRASHED, "Crashed"), "retrain", tmp_path)
    assert "one at work" in str(found)


@pytest.mark.parametrize("text", [str(RUN_ID), f"http://127.0.0.1:4200/runs/flow-run/{RUN_ID}", f"/x/{RUN_ID}/"])
def test_a_run_is_named_by_its_id_or_its_page(text: str) -> None:
    assert run_id_of(text) == RUN_ID


@pytest.mark.parametrize("text", ["", "calm-owl", "http://127.0.0.1:4200/runs", "8eda03a4"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(JobError, match="the id of a run"):
        run_id_of(text)


def test_a_training_that_never_began_left_nothing(tmp_path: Path) -> None:
    left: Any = training_left(tmp_path / "train")
    assert left == (None, None)
