"""Start a retraining through its deployment and follow it to its end, as a person would in the UI."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, cast
from uuid import UUID

from data_contracts.errors import JobError, OutsideSystemError, Problem
from tasks.job import TrainingJob
from tasks.promote import PromoteConfig

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

POLL_S = 1.0
LOGS_AFTER_END_S = 2.0
"""The last log lines of a run are sent after its state."""
RETRAIN = "retrain/retrain"


@dataclass(frozen=True)
class RunEnd:
    """How a flow run ended. `stages`: seconds per task, in the order of their start; a subflow is one of them."""

    name: str
    message: str
    completed: bool
    stages: dict[str, float]


def start_retrain(job: TrainingJob, promotion: PromoteConfig) -> UUID:
    """Create a run of `retrain` and return its id. Raises OutsideSystemError when Prefect refuses it."""
    from prefect.deployments import run_deployment
    from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

    parameters = {"job": job.model_dump(mode="json"), "promotion": promotion.model_dump(mode="json")}
    try:
        run = cast("FlowRun", run_deployment(RETRAIN, parameters=parameters, timeout=0, as_subflow=False))
    except ObjectNotFound:
        raise JobError(Problem(RETRAIN, "a deployment", "none", "Run `passline deploy` first.")) from None
    except PrefectHTTPStatusError as error:
        raise OutsideSystemError(Problem(RETRAIN, "a new run", str(error), "Mend what it names.")) from None
    return UUID(str(run.id))


def follow_run(run_id: UUID, say: Callable[[str], None]) -> RunEnd:
    """Tell each log line of the run and its subflows until it has ended."""
    from prefect.client.orchestration import get_client

    seen: set[UUID] = set()
    with get_client(sync_client=True) as client:
        while True:
            run = client.read_flow_run(run_id)
            family = [run_id, *_subflows(client, run_id)]
            for line in _new_log_lines(client, family, seen):
                say(line)
            if run.state is not None and run.state.is_final():
                time.sleep(LOGS_AFTER_END_S)
                for line in _new_log_lines(client, family, seen):
                    say(line)
                stages = _stages(client, run_id)
                return RunEnd(run.state.name or "", run.state.message or "", run.state.is_completed(), stages)
            time.sleep(POLL_S)


def _subflows(client: SyncPrefectClient, run_id: UUID) -> list[UUID]:
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId

    found: list[UUID] = []
    level = [run_id]
    while level:
        wanted = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=level))
        level = [run.id for run in client.read_flow_runs(flow_run_filter=wanted)]
        found += level
    return found


def _new_log_lines(client: SyncPrefectClient, family: list[UUID], seen: set[UUID]) -> list[str]:
    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

    wanted = LogFilter(flow_run_id=LogFilterFlowRunId(any_=family))
    offset, lines = len(seen) // 200 * 200, []
    while page := client.read_logs(log_filter=wanted, limit=200, offset=offset):
        for log in page:
            if log.id not in seen:
                seen.add(log.id)
                lines.append(f"{_clock(log.timestamp)}  {log.message}")
        offset += 200
    return lines


def _clock(at: datetime) -> str:
    return f"{at.astimezone():%H:%M:%S}"


def _stages(client: SyncPrefectClient, run_id: UUID) -> dict[str, float]:
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
    from prefect.client.schemas.sorting import TaskRunSort

    found = client.read_task_runs(
        flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run_id])), sort=TaskRunSort.END_TIME_DESC, limit=200
    )
    spans = [(run.start_time, run.end_time, run.name) for run in found if run.start_time and run.end_time]
    stages: dict[str, float] = {}
    for start, end, name in sorted(spans):
        stage = name.rsplit("-", 1)[0].replace("_", " ")
        stages[stage] = stages.get(stage, 0.0) + (end - start).total_seconds()
    return stages
