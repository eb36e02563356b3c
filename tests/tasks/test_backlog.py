"""After downtime one catch-up per deployment, not a flood (field case A24)."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun

from tasks.backlog import by_schedule, reason, superseded

AT = datetime(2026, 3, 10, 8, 0, tzinfo=UTC)
NIGHTLY, HOURLY = uuid4(), uuid4()


def run(days_ago: float, deployment: UUID = NIGHTLY, *, scheduled: bool = True) -> FlowRun:
    start = AT - timedelta(days=days_ago)
    return FlowRun(
        flow_id=uuid4(),
        deployment_id=deployment,
        expected_start_time=start,
        created=start - timedelta(days=1) if scheduled else start,
        auto_scheduled=scheduled,
        tags=["auto-scheduled"] if scheduled else [],
    )


def test_ten_missed_nights_and_one_manual_run_leave_the_last_night_and_the_manual_run() -> None:
    nights = [run(days) for days in range(10, 0, -1)]
    manual = run(3, scheduled=False)
    give_way = superseded([*nights, manual], AT)
    assert set(give_way) == {night.id for night in nights[:-1]}
    assert {later.id for later in give_way.values()} == {nights[-1].id}


def test_each_deployment_catches_up_by_itself() -> None:
    runs = [run(2), run(1), run(2, HOURLY), run(1, HOURLY)]
    assert set(superseded(runs, AT)) == {runs[0].id, runs[2].id}


def test_runs_of_the_future_neither_give_way_nor_supersede() -> None:
    runs = [run(1), run(-1), run(-2)]
    assert superseded(runs, AT) == {}


def test_a_run_that_is_taken_up_again_neither_gives_way_nor_supersedes() -> None:
    begun = run(2).model_copy(update={"state_name": "AwaitingRetry"})
    assert superseded([run(3), begun, run(1)], AT).keys().isdisjoint({begun.id})
    assert superseded([run(2), begun.model_copy(update={"expected_start_time": AT})], AT) == {}


@pytest.mark.parametrize(
    ("case", "changes", "expected"),
    [
        ("flag", {"auto_scheduled": True, "tags": []}, True),
        ("tag alone", {"auto_scheduled": False, "tags": ["auto-scheduled"]}, True),
        ("a person's run now", {"auto_scheduled": False, "tags": []}, False),
        ("start long before it was made", {"auto_scheduled": False, "tags": [], "created": AT}, True),
    ],
)
def test_who_made_a_run(case: str, changes: dict[str, object], expected: bool) -> None:
    assert by_schedule(run(1, scheduled=False).model_copy(update=changes)) is expected


def test_the_reason_names_the_run_that_catches_up() -> None:
    assert "2026-03-09 08:00" in reason(run(1))
