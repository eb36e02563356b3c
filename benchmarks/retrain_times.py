"""Where the wall time of a `retrain` run went, from what Prefect noted about the run and its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from data_contracts.errors import OutsideSystemError, Problem

if TYPE_CHECKING:
    from datetime import datetime

REGISTER = "register_bundle"
GATES = "decide_gates"


@dataclass(frozen=True)
class Span:
    """One stage: seconds after the start of the run."""

    stage: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class RetrainTimes:
    """Stages of a run, and the seconds between its creation and its start: queueing and process start."""

    spans: tuple[Span, ...]
    start_delay_s: float

    def wall_s(self, last_stage: str) -> float | None:
        """Seconds from the start of the run to the end of `last_stage`; None when there was no such stage."""
        ends = [span.end_s for span in self.spans if span.stage == last_stage]
        return max(ends) if ends else None

    def stages(self) -> dict[str, float]:
        """Seconds per stage, in the order of their start."""
        seconds: dict[str, float] = {}
        for span in sorted(self.spans, key=lambda one: one.start_s):
            seconds[span.stage] = seconds.get(span.stage, 0.0) + span.end_s - span.start_s
        return seconds


def orchestration_share(spans: Sequence[Span], wall_s: float) -> float:
    """Share of the first `wall_s` seconds during which no stage ran.

    Worked example: stages 1-4 s and 3-8 s of a wall time of 10 s cover 7 s, which leaves 0.3.

    >>> orchestration_share([Span("a", 1, 4), Span("b", 3, 8)], 10)
    0.3
    """
    covered, reached = 0.0, 0.0
    for span in sorted(spans, key=lambda one: one.start_s):
        end_s = min(span.end_s, wall_s)
        covered += max(0.0, end_s - max(span.start_s, reached))
        reached = max(reached, end_s)
    return 1 - covered / wall_s


def spans_of(started: datetime, tasks: Sequence[tuple[str, datetime | None, datetime | None]]) -> tuple[Span, ...]:
    """Stages from task runs (name with its random ending, start, end); those that never ran are left out."""
    return tuple(
        Span(name.rsplit("-", 1)[0], (start - started).total_seconds(), (end - started).total_seconds())
        for name, start, end in tasks
        if start is not None and end is not None
    )


def read_times(run_id: UUID) -> RetrainTimes:
    """Ask Prefect. Raises OutsideSystemError when the run never started."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    with get_client(sync_client=True) as client:
        run = client.read_flow_run(run_id)
        tasks = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run_id])), limit=200)
    if run.start_time is None or run.created is None:
        raise OutsideSystemError(Problem(f"retrain run {run_id}", "a start", "none", "See the training worker's log."))
    spans = spans_of(run.start_time, [(task.name, task.start_time, task.end_time) for task in tasks])
    return RetrainTimes(spans, (run.start_time - run.created).total_seconds())
