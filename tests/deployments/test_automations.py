"""What the automations listen to and do; a real server takes them in tests/slow/test_stack_faults.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr, ValidationError

from data_contracts.errors import InvalidInput
from deployments.automations import AlertConfig, attend, silent_run, tell, unattended
from deployments.environment import SIGN_OF_LIFE_S, alert_webhook, load_stack_settings
from tasks.alerts import ALARMING

CONFIG = AlertConfig(silence_s=120, unattended_s=180)
ID = UUID(int=7)


def takes(words: set[str], event: str) -> bool:
    """Whether an event is among `words`, as Prefect reads them: a star stands for anything."""
    return any(re.fullmatch(re.escape(word).replace(r"\*", ".+"), event) for word in words)


@pytest.mark.parametrize(
    "end", ["Completed", "Promoted", "Registered", "Rejected", "Cancelled", "Failed", "Interrupted"]
)
def test_a_run_that_ended_is_not_given_up_whatever_its_state_is_called(end: str) -> None:
    trigger: Any = silent_run(["retrain"], CONFIG).trigger
    assert takes(trigger.expect, f"prefect.flow-run.{end}")
    assert not takes(trigger.after, f"prefect.flow-run.{end}")


@pytest.mark.parametrize("word", ["heartbeat", "Pending", "Submitting", "Running", "Cancelling"])
def test_silence_counts_from_whatever_a_run_was_last_seen_doing(word: str) -> None:
    trigger: Any = silent_run(["retrain"], CONFIG).trigger
    assert takes(trigger.after, f"prefect.flow-run.{word}")
    assert trigger.within.total_seconds() == 120


@pytest.mark.parametrize("state", ALARMING)
def test_every_bad_end_of_a_retraining_is_attended_to(state: str) -> None:
    trigger: Any = attend(ID).trigger
    assert takes(trigger.expect, f"prefect.flow-run.{state}")
    assert trigger.match_related["prefect.resource.name"] == ["retrain"]


def test_the_server_tells_people_itself_when_no_alert_comes() -> None:
    trigger: Any = unattended(ID, CONFIG).trigger
    assert takes(trigger.expect, next(iter(tell(ID).trigger.expect)))  # type: ignore[union-attr]
    assert takes(trigger.after, "prefect.flow-run.Crashed")


def test_five_minutes_hold_with_the_last_sign_of_life_just_before_the_end() -> None:
    longest = AlertConfig.model_json_schema()["properties"]["silence_s"]["maximum"]
    assert longest + SIGN_OF_LIFE_S <= 300


def test_every_process_sends_its_signs_of_life_and_waits_for_a_restart(tmp_path: Path) -> None:
    (tmp_path / "prefect.yaml").touch()
    environment = load_stack_settings({}, tmp_path).control_environment()
    assert environment["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == str(SIGN_OF_LIFE_S)
    assert int(environment["PREFECT_CLIENT_MAX_RETRIES"]) > 5  # Prefect's own: a minute


@pytest.mark.parametrize("silence_s", [89, 271])
def test_silence_out_of_bounds_is_refused(silence_s: int) -> None:
    with pytest.raises(ValidationError, match="silence_s"):
        AlertConfig(silence_s=silence_s, unattended_s=180)


@pytest.mark.parametrize(
    ("environ", "address"),
    [({}, None), ({"PASSLINE_ALERT_WEBHOOK": ""}, None), ({"PASSLINE_ALERT_WEBHOOK": "http://h/x"}, "http://h/x")],
)
def test_nothing_is_sent_unless_an_address_is_given(environ: Mapping[str, str], address: str | None) -> None:
    found = alert_webhook(environ)
    assert (found.get_secret_value() if found else None) == address


@pytest.mark.parametrize("text", ["hooks.example/secret", "ftp://h/secret", "http:///secret"])
def test_a_wrong_address_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidInput, match="PASSLINE_ALERT_WEBHOOK") as caught:
        alert_webhook({"PASSLINE_ALERT_WEBHOOK": text})
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(SecretStr(text))
