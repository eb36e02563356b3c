"""Bad ends that the automation of the server passed over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType

from deployments.missed_ends import attend_to_missed, missed_ends
from tasks.flow_runs import AT_ONCE

AT = datetime(2026, 3, 10, 12, tzinfo=UTC)
RUN_ID = uuid4()


def ended(name: str = "Crashed", before_s: float = 60.0, run_id: UUID = RUN_ID) -> FlowRun:
    kind = {"Crashed": StateType.CRASHED, "Completed": StateType.COMPLETED, "Rejected": StateType.COMPLETED}
    state = State(type=kind.get(name, StateType.FAILED), name=name, timestamp=AT - timedelta(seconds=before_s))
    return FlowRun(id=run_id, flow_id=uuid4(), name="calm-owl", state=state)


def attends(before_s: float, state: StateType = StateType.COMPLETED, run_id: UUID = RUN_ID) -> FlowRun:
    made = AT - timedelta(seconds=before_s)
    given = {"parameters": {"flow_run_id": str(run_id), "config": {}}, "state": State(type=state)}
    return FlowRun(id=uuid4(), flow_id=uuid4(), created=made, **given)


@pytest.mark.parametrize(
    ("case", "run", "attending", "missed"),
    [
        ("nobody looked", ended(), [], True),
        ("a host too small", ended("Refused"), [], True),
        ("somebody looked", ended(), [attends(50)], False),
        ("somebody is going to", ended(), [attends(50, StateType.SCHEDULED)], False),
        ("at another run", ended(), [attends(50, run_id=uuid4())], True),
        ("at an earlier end of the same run", ended(), [attends(70)], True),
        ("but could not", ended(), [attends(50, StateType.CRASHED)], True),
        ("it ended just now", ended(before_s=10), [], False),
        ("long ago", ended(before_s=2 * 86_400), [], False),
        ("it ended well", ended("Completed"), [], False),
        ("rejected is a result", ended("Rejected"), [], False),
    ],
)
def test_a_bad_end_is_missed_when_nobody_looked_at_it(
    case: str, run: FlowRun, attending: list[FlowRun], missed: bool
) -> None:
    assert missed_ends([run], attending, AT) == ([RUN_ID] if missed else [])


class Server:
    """More ended runs than one page holds; one was attended to."""

    def __init__(self) -> None:
        self.runs = {"retrain": [ended(run_id=uuid4()) for _ in range(AT_ONCE + 1)]}
        self.runs["attend"] = [attends(50, run_id=self.runs["retrain"][0].id)]
        self.started: list[tuple[str, Any]] = []

    def read_flow_runs(self, flow_run_filter: Any, deployment_filter: Any, limit: int, offset: int) -> list[FlowRun]:
        (name,) = deployment_filter.name.any_
        time = flow_run_filter.end_time if name == "retrain" else flow_run_filter.expected_start_time
        assert time.after_ == AT - timedelta(days=1)
        return self.runs[name][offset:][:limit]

    def read_deployment_by_name(self, name: str) -> Any:
        return SimpleNamespace(id=name)

    def create_flow_run_from_deployment(self, deployment_id: str, parameters: Any) -> None:
        self.started.append((deployment_id, parameters))


def test_each_missed_end_is_attended_to() -> None:
    server = Server()
    missed = attend_to_missed(server, AT)  # type: ignore[arg-type]
    assert missed == [run.id for run in server.runs["retrain"][1:]]
    assert server.started == [("attend/attend", {"flow_run_id": str(run_id)}) for run_id in missed]
