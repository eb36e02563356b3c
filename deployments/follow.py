"""Start a retraining through its deployment and follow it to its end, as a person would in the UI."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, cast
from uuid import UUID

from data_contracts.errors import JobError, OutsideSystemError, Problem
from deployments.jobs_runs import job_variables
from tasks.job import TrainingJob
from tasks.promote import PromoteConfig

if TYPE_CHECKING:
    import httpx
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, Log

POLL_S = 1.0
LAST_LINE = "Finished in state"
"""How the engine's own last line about a run begins."""
LOGS_AFTER_END_S = 15.0
"""How long that line may take to arrive after the state: log lines are sent in batches, beside the run."""
PAGE = 200
RETRAIN = "retrain/retrain"


@dataclass(frozen=True)
class RunEnd:
    """How a flow run ended. `stages`: seconds per task, in the order of their start; a subflow is one of them."""

    name: str
    message: str
    completed: bool
    stages: dict[str, float]


def start_retrain(job: TrainingJob, promotion: PromoteConfig) -> UUID:
    """Create a run of `retrain` and return its id.

    Raises JobError for an image that the pool cannot use, OutsideSystemError when Prefect refuses the run.
    """
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment
    from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

    parameters = {"job": job.model_dump(mode="json"), "promotion": promotion.model_dump(mode="json")}
    try:
        with get_client(sync_client=True) as client:
            pool = client.read_work_pool(client.read_deployment_by_name(RETRAIN).work_pool_name or "")
        found = run_deployment(
            RETRAIN,
            parameters=parameters,
            job_variables=job_variables(job.image, pool),
            timeout=0,
            as_subflow=False,
        )
    except ObjectNotFound:
        raise JobError(Problem(RETRAIN, "a deployment", "none", "Run `passline deploy` first.")) from None
    except PrefectHTTPStatusError as error:
        action = "Mend what it names; `passline deploy` when the deployment is of another version."
        raise OutsideSystemError(Problem(RETRAIN, "a new run", refusal(error.response), action)) from None
    return UUID(str(cast("FlowRun", found).id))


def refusal(response: httpx.Response) -> str:
    """What the server said, without the words around it."""
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = response.text
    return f"HTTP {response.status_code}: {detail}"


def follow_run(run_id: UUID, say: Callable[[str], None]) -> RunEnd:
    """Tell each log line of the run and its subflows until it has ended."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return follow(client, run_id, say, time.sleep)


def follow(
    client: SyncPrefectClient, run_id: UUID, say: Callable[[str], None], sleep: Callable[[float], None]
) -> RunEnd:
    """The same with a client at hand. The lines that come after the end are waited for, up to the engine's last."""
    seen: set[UUID] = set()
    polls_left, before = int(LOGS_AFTER_END_S / POLL_S), False
    while True:
        run = client.read_flow_run(run_id)
        lines = _new_log_lines(client, [run_id, *_subflows(client, run_id)], seen)
        for line in lines:
            say(f"{_clock(line.timestamp)}  {line.message}")
        ended = run.state is not None and run.state.is_final()
        last = any(_is_last(line, run_id) for line in lines)  # it may be here a moment before the state
        if ended and (last or before or polls_left == 0 or run.start_time is None):
            return _end_of(client, run)
        polls_left, before = polls_left - ended, last
        sleep(POLL_S)


def _is_last(line: Log, run_id: UUID) -> bool:
    """Tasks end with the same words, and so do subflows."""
    return (line.flow_run_id, line.task_run_id) == (run_id, None) and line.message.startswith(LAST_LINE)


def _end_of(client: SyncPrefectClient, run: FlowRun) -> RunEnd:
    assert run.state is not None  # noqa: S101  it has ended
    return RunEnd(run.state.name or "", run.state.message or "", run.state.is_completed(), _stages(client, run.id))


def _subflows(client: SyncPrefectClient, run_id: UUID) -> list[UUID]:
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId

    found: list[UUID] = []
    level = [run_id]
    while level:
        wanted = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=level))
        level = [run.id for run in client.read_flow_runs(flow_run_filter=wanted)]
        found += level
    return found


def _new_log_lines(client: SyncPrefectClient, family: list[UUID], seen: set[UUID]) -> list[Log]:
    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

    wanted = LogFilter(flow_run_id=LogFilterFlowRunId(any_=family))
    # One page back: a line that arrives late has its place among those of its time.
    offset, lines = max(0, len(seen) // PAGE - 1) * PAGE, []
    while page := client.read_logs(log_filter=wanted, limit=PAGE, offset=offset):
        lines += [log for log in page if log.id not in seen]
        seen.update(log.id for log in page)
        offset += PAGE
    return lines


def _clock(at: datetime) -> str:
    return f"{at.astimezone():%H:%M:%S}"


def _stages(client: SyncPrefectClient, run_id: UUID) -> dict[str, float]:
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
    from prefect.client.schemas.sorting import TaskRunSort

    found = client.read_task_runs(
        flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run_id])), sort=TaskRunSort.END_TIME_DESC, limit=PAGE
    )
    spans = [(run.start_time, run.end_time, run.name) for run in found if run.start_time and run.end_time]
    stages: dict[str, float] = {}
    for start, end, name in sorted(spans):
        stage = name.rsplit("-", 1)[0].replace("_", " ")
        stages[stage] = stages.get(stage, 0.0) + (end - start).total_seconds()
    return stages
