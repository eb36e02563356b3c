"""Following a run: every log line is told, also those that the server has only after the run's last state."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, Log
from prefect.states import Cancelled, Completed, Running

from deployments.follow import LOGS_AFTER_END_S, PAGE, follow

AT = datetime(2026, 3, 10, 2, 0, tzinfo=UTC)
RUN, SUBFLOW, TASK = uuid4(), uuid4(), uuid4()
ENDED = FlowRun(id=RUN, flow_id=uuid4(), name="calm-owl", state=Completed(name="Registered"), start_time=AT)
LAST = "Finished in state Completed('version 2')"


def line(message: str, at_s: float = 0.0, run: UUID = RUN, task: UUID | None = None) -> Log:
    return Log(
        id=uuid4(), name="log", level=20, message=message, timestamp=AT + timedelta(seconds=at_s), flow_run_id=run,
        task_run_id=task,
    )  # fmt: skip


class Server:
    """What the server answers, poll after poll: the run, and the lines that are there by then."""

    def __init__(self, run: FlowRun, *polls: list[Log]) -> None:
        self.run, self.polls, self.poll, self.logs = run, polls, 0, []

    def read_flow_run(self, _: UUID) -> FlowRun:
        self.logs += self.polls[self.poll] if self.poll < len(self.polls) else []
        self.logs.sort(key=lambda log: log.timestamp)
        self.poll += 1
        return self.run if self.poll > 1 else self.run.model_copy(update={"state": Running()})

    def read_flow_runs(self, **_: Any) -> list[FlowRun]:
        return []

    def read_logs(self, log_filter: object, limit: int, offset: int) -> list[Log]:
        return self.logs[offset : offset + limit]

    def read_task_runs(self, **_: Any) -> list[object]:
        return []


def told(server: Server) -> Iterator[str]:
    said: list[str] = []
    follow(server, RUN, said.append, lambda _: None)  # type: ignore[arg-type]
    return (text.split("  ", 1)[1] for text in said)


def test_lines_that_arrive_after_the_last_state_are_told_up_to_the_engines_own() -> None:
    server = Server(
        ENDED, [line("begins")], [], [], [line("service restarted", 1)], [line(LAST, 2)], [line("never", 3)]
    )
    assert list(told(server)) == ["begins", "service restarted", LAST]


@pytest.mark.parametrize(("case", "run", "task"), [("of a task", RUN, TASK), ("of a subflow", SUBFLOW, None)])
def test_the_last_line_of_a_part_is_not_the_end(case: str, run: UUID, task: UUID | None) -> None:
    server = Server(ENDED, [], [line(LAST, 1, run, task)], [line("more", 2)], [line(LAST, 3)])
    assert list(told(server)) == [LAST, "more", LAST]


def test_the_last_line_may_be_there_before_the_state() -> None:
    server = Server(ENDED, [line(LAST)])
    assert list(told(server)) == [LAST]
    assert server.poll == 2


def test_a_run_whose_engine_was_killed_is_waited_for_only_so_long() -> None:
    server = Server(ENDED, [line("begins")])
    assert list(told(server)) == ["begins"]
    assert server.poll == 2 + int(LOGS_AFTER_END_S)


def test_a_run_that_never_started_is_not_waited_for() -> None:
    server = Server(ENDED.model_copy(update={"state": Cancelled(), "start_time": None}))
    assert list(told(server)) == []
    assert server.poll == 2


def test_a_late_line_among_many_is_told_once() -> None:
    many = [line(f"line {number}", number) for number in range(PAGE + 5)]
    server = Server(ENDED, many, [line("late", PAGE - 10.5)], [line(LAST, 10_000)])
    found = list(told(server))
    assert len(found) == len(many) + 2
    assert found.count("late") == 1


def test_how_it_ended() -> None:
    end = follow(Server(ENDED, [line(LAST)]), RUN, lambda _: None, lambda _: None)  # type: ignore[arg-type]
    assert (end.name, end.completed, end.stages) == ("Registered", True, {})
