"""Commands of the training side: jobs and deployments. For data see `deployments.cli_dataset` and `cli_validate`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from data_contracts.errors import OutsideSystemError, Problem
from deployments.environment import StackSettings, load_stack_settings

if TYPE_CHECKING:
    from deployments.jobs import Board


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(submit)
    app.command()(jobs)
    app.command()(deploy)


def enter_training_side() -> StackSettings:
    """Take the locations of the local stack over into this process, where the shell does not say otherwise.

    Prefect reads its environment when it is imported: call this before.
    """
    settings = load_stack_settings()
    settings.home.mkdir(parents=True, exist_ok=True)  # Prefect complains where its folder cannot be made in it.
    for name, value in settings.training_environment().items():
        os.environ.setdefault(name, value)
    return settings


@contextmanager
def asking_prefect() -> Iterator[None]:
    """Raises OutsideSystemError where the Prefect server is away, or does not do what it is asked for."""
    import httpx

    try:
        yield
    except httpx.HTTPError as error:
        action = "Run `passline up`, or see PREFECT_API_URL; what it was asked for did not happen, or is not known to."
        raise OutsideSystemError(Problem("Prefect server", "an answer", str(error), action)) from None


def submit(
    job: Annotated[Path, typer.Argument(help="Job file; what it does not say comes from params.yaml.")],
    wait: Annotated[bool, typer.Option(help="Follow the run to its end.")] = False,
) -> None:
    """Start a retraining. A wrong or unknown field is refused by name before a run exists."""
    settings = enter_training_side()
    from deployments.follow import follow_run, start_retrain
    from deployments.params import load_job, load_params

    params = load_params(settings.project / "params.yaml")
    with asking_prefect():
        run_id = start_retrain(load_job(job, params), params.promote)
    typer.echo(f"{settings.prefect_url}/runs/flow-run/{run_id}")
    typer.echo(_board(midnight()).place(run_id))
    if wait:
        with asking_prefect():
            end = follow_run(run_id, typer.echo)
        typer.echo(f"{end.name}: {end.message}")
        if not end.completed:
            raise typer.Exit(1)


def jobs(
    every: Annotated[bool, typer.Option("--all", help="Also the jobs that ended before today.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the queue and why each job waits, how far the running ones are, and how today's ended."""
    enter_training_side()
    from deployments.jobs_view import board_fields, board_text

    board = _board(None if every else midnight())
    typer.echo(json.dumps(board_fields(board), indent=2, ensure_ascii=False) if as_json else board_text(board))


def midnight() -> datetime:
    """When today began, here."""
    return datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)


def _board(ended_after: datetime | None) -> Board:
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    from deployments.jobs import POOL, read_board

    try:
        with asking_prefect(), get_client(sync_client=True) as client:
            return read_board(client, ended_after)
    except ObjectNotFound:
        raise OutsideSystemError(Problem(f"pool {POOL!r}", "a work pool", "none", "Run `passline deploy`.")) from None


def deploy() -> None:
    """Apply prefect.yaml to the Prefect server; nothing changes when anything in it or in params.yaml is wrong."""
    settings = enter_training_side()
    from deployments.deploy import deploy as apply

    with asking_prefect():
        deployed = apply(settings.project)
    for name, deployment_id in deployed.items():
        typer.echo(f"{name:<17} {settings.prefect_url}/deployments/deployment/{deployment_id}")
