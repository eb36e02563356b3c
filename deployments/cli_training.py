"""Commands of the training side: jobs and deployments. For data see `deployments.cli_dataset` and `cli_validate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from deployments.environment import StackSettings, load_stack_settings


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(submit)
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


def submit(
    job: Annotated[Path, typer.Argument(help="Job file; what it does not say comes from params.yaml.")],
    wait: Annotated[bool, typer.Option(help="Follow the run to its end.")] = False,
) -> None:
    """Start a retraining. A wrong or unknown field is refused by name before a run exists."""
    settings = enter_training_side()
    from deployments.follow import follow_run, start_retrain
    from deployments.params import load_job, load_params

    params = load_params(settings.project / "params.yaml")
    run_id = start_retrain(load_job(job, params), params.promote)
    typer.echo(f"{settings.prefect_url}/runs/flow-run/{run_id}")
    if wait:
        end = follow_run(run_id, typer.echo)
        typer.echo(f"{end.name}: {end.message}")
        if not end.completed:
            raise typer.Exit(1)


def deploy() -> None:
    """Apply prefect.yaml to the Prefect server; nothing changes when anything in it or in params.yaml is wrong."""
    settings = enter_training_side()
    from deployments.deploy import deploy as apply

    for name, deployment_id in apply(settings.project).items():
        typer.echo(f"{name:<17} {settings.prefect_url}/deployments/deployment/{deployment_id}")
