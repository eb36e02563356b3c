"""Cancelled runs whose process goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType

from deployments import stuck_cancels
from deployments.jobs_runs import WORKER
from deployments.stuck_cancels import RUN_ID, end_overdue

AT = datetime(2026, 3, 10, 12, tzinfo=UTC)
WAITS = "import signal, sys, time; {}; print('ready', flush=True); time.sleep(60)"


def cancelling(run_id: UUID, since_s: float = 60.0, worker: str = "here") -> FlowRun:
    state = State(type=StateType.CANCELLING, timestamp=AT - timedelta(seconds=since_s))
    return FlowRun(id=run_id, flow_id=uuid4(), state=state, labels={WORKER: worker})


def server(*runs: FlowRun) -> Any:
    return SimpleNamespace(read_flow_runs=lambda limit, offset, **_: list(runs)[offset:][:limit])


@pytest.fixture(params=["pass", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"], ids=["ends", "has to be killed"])
def process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, UUID]]:
    """One that works on a run, and hears when it shall end, or does not."""
    monkeypatch.setattr(stuck_cancels, "TO_END_S", 0.2)
    run_id = uuid4()
    command = [sys.executable, "-c", WAITS.format(request.param)]
    environment = {**os.environ, RUN_ID: str(run_id)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running, run_id
        running.kill()


def test_the_process_of_a_cancelled_run_that_goes_on_is_ended(process: tuple[Any, UUID]) -> None:
    running, run_id = process
    other = uuid4()
    assert end_overdue(server(cancelling(run_id), cancelling(other)), "here", AT) == [run_id]
    assert running.wait(10) < 0, "by a signal"


@pytest.mark.parametrize(
    ("case", "changes"), [("just wished", {"since_s": 10.0}), ("a run of another worker", {"worker": "there"})]
)
def test_others_are_left_alone(case: str, changes: dict[str, Any], process: tuple[Any, UUID]) -> None:
    running, run_id = process
    assert end_overdue(server(cancelling(run_id, **changes)), "here", AT) == []
    assert running.poll() is None
