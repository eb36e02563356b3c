"""Which runs a starting worker gives up."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from uuid import UUID

from prefect.client.schemas.objects import FlowRun, State, StateType

from data_contracts.release import now
from tasks.orphans import orphans
from tasks.run_folder import attempt

AT = now()


def run_of(number: int, folder: Path, age_s: float = 60.0, *, began_here: bool = True) -> FlowRun:
    """A run that is said to run since `age_s`; its folder is on this machine when it began here."""
    run = FlowRun(
        id=UUID(int=number),
        flow_id=UUID(int=0),
        state=State(type=StateType.RUNNING, timestamp=AT - timedelta(seconds=age_s)),
    )
    if began_here:
        (folder / str(run.id)).mkdir()
        (folder / str(run.id) / "alive.lock").touch()
    return run


def test_a_run_is_given_up_when_it_began_here_and_no_process_works_on_it(tmp_path: Path) -> None:
    lost, alive = run_of(1, tmp_path), run_of(2, tmp_path)
    elsewhere, just_started = run_of(3, tmp_path, began_here=False), run_of(4, tmp_path, age_s=1)
    with attempt(tmp_path / str(alive.id)):
        found = orphans([lost, alive, elsewhere, just_started], tmp_path, AT)
    assert [run.id for run in found] == [lost.id]
