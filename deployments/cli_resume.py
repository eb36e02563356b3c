"""`passline resume`: take up a retraining that crashed or failed."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from data_contracts.errors import JobError, Problem
from deployments.cli_training import asking_prefect, enter_training_side


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(resume)


def resume(
    run: Annotated[str, typer.Argument(help="Id of the run: the last part of the address of its page.")],
    wait: Annotated[bool, typer.Option(help="Follow the run to its end.")] = False,
) -> None:
    """Take up a retraining that crashed or failed: same run, same MLflow run, from the last good checkpoint."""
    run_id = run_id_of(run)
    settings = enter_training_side()
    from deployments.follow import follow_run
    from tasks.resuming import resume_run
    from tasks.settings import load_site_settings

    with asking_prefect():
        name = resume_run(run_id, load_site_settings().runs, "taken up again by a person")
    typer.echo(f"{name} goes on: {settings.prefect_url}/runs/flow-run/{run_id}")
    if wait:
        with asking_prefect():
            end = follow_run(run_id, typer.echo)
        typer.echo(f"{end.name}: {end.message}")
        if not end.completed:
            raise typer.Exit(1)


def run_id_of(text: str) -> UUID:
    """The id in `text`, which may be the address of the run's page. Raises JobError when there is none."""
    last = text.rstrip("/").rsplit("/", 1)[-1]
    try:
        return UUID(last)
    except ValueError:
        action = "Give the id or the address of the run's page."
        raise JobError(Problem(f"run {text!r}", "the id of a run", "another text", action)) from None
