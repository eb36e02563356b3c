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
STAGE_OF = {
    "pin_dataset": "pin",
    "check_dataset": "validate",
    "smoke_run": "smoke",
    "train_detector": "train",
    "export_model": "export",
    "quantise_model": "quantise",
    "choose_thresholds": "evaluate",
    "evaluate_bundle": "evaluate",
    "compare_with_the_champion": "evaluate",
    "ask_earlier_champions": "gates",
    "check_parity": "gates",
    "measure_speed": "gates",
    "decide_gates": "gates",
    "register_bundle": "register",
}
"""Task to named stage. The time of any other task counts as outside, as the time between tasks does."""


@dataclass(frozen=True)
class Span:
    """One task of a run: seconds after the start of the run."""

    task: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class RetrainTimes:
    """Tasks of a run, the seconds between its creation and its start (queueing, process start), and its end."""

    spans: tuple[Span, ...]
    start_delay_s: float
    end_s: float

    def wall_s(self, last_task: str) -> float | None:
        """Seconds from the start of the run to the end of `last_task`; None when there was no such task."""
        ends = [span.end_s for span in self.spans if span.task == last_task]
        return max(ends) if ends else None

    def tasks(self) -> dict[str, float]:
        """Seconds per task, in the order of their start."""
        seconds: dict[str, float] = {}
        for span in sorted(self.spans, key=lambda one: one.start_s):
            seconds[span.task] = seconds.get(span.task, 0.0) + span.end_s - span.start_s
        return seconds

    def outside_s(self) -> float:
        """Seconds outside the named stages, from the creation of the run to its end."""
        named = [span for span in self.spans if span.task in STAGE_OF]
        return self.start_delay_s + uncovered_s(named, self.end_s)


def uncovered_s(spans: Sequence[Span], wall_s: float) -> float:
    """How many of the first `wall_s` seconds lie in no span.

    Worked example: spans 1-4 s and 3-8 s of a wall time of 10 s cover 7 s, which leaves 3.

    >>> uncovered_s([Span("a", 1, 4), Span("b", 3, 8)], 10)
    3.0
    """
    covered, reached = 0.0, 0.0
    for span in sorted(spans, key=lambda one: one.start_s):
        end_s = min(span.end_s, wall_s)
        covered += max(0.0, end_s - max(span.start_s, reached))
        reached = max(reached, end_s)
    return wall_s - covered


def task_name(run_name: str) -> str:
    """The task of a task run, without the run's random ending.

    >>> task_name("compare with the champion-0f1")
    'compare_with_the_champion'
    """
    return run_name.rsplit("-", 1)[0].replace(" ", "_")


def spans_of(started: datetime, tasks: Sequence[tuple[str, datetime | None, datetime | None]]) -> tuple[Span, ...]:
    """Spans from task runs (name, start, end); those that never ran are left out."""
    return tuple(
        Span(task_name(name), (start - started).total_seconds(), (end - started).total_seconds())
        for name, start, end in tasks
        if start is not None and end is not None
    )


def read_times(run_id: UUID) -> RetrainTimes:
    """Ask Prefect. Raises OutsideSystemError when the run never started or has not ended."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    with get_client(sync_client=True) as client:
        run = client.read_flow_run(run_id)
        tasks = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run_id])), limit=200)
    if run.start_time is None or run.created is None or run.end_time is None:
        raise OutsideSystemError(
            Problem(f"retrain run {run_id}", "a start and an end", "none", "See the training worker's log.")
        )
    spans = spans_of(run.start_time, [(task.name, task.start_time, task.end_time) for task in tasks])
    waited, ran = run.start_time - run.created, run.end_time - run.start_time
    return RetrainTimes(spans, waited.total_seconds(), ran.total_seconds())
