"""Commands of the training side: data, jobs, deployments."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from data_contracts.errors import InvalidInput, Problem
from deployments.environment import StackSettings, load_stack_settings

dataset_app = typer.Typer(no_args_is_help=True, help="Dataset repositories (git + DVC).")
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
REJECTED = 1


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(dataset_app, name="dataset")
    app.command()(validate)
    app.command()(submit)
    app.command()(deploy)


def enter_training_side() -> StackSettings:
    """Take the locations of the local stack over into this process, where the shell does not say otherwise.

    Prefect reads its environment when it is imported: call this before.
    """
    settings = load_stack_settings()
    for name, value in settings.training_environment().items():
        os.environ.setdefault(name, value)
    return settings


@dataset_app.command("add")
def add(
    folder: Annotated[Path, typer.Argument(help="Folder in the YOLO layout, with data.yaml.")],
    name: Annotated[str, typer.Option(help="Name of the dataset.")],
    message: Annotated[str, typer.Option(help="What is new.")] = "new revision",
) -> None:
    """Pin a folder as the newest revision of a dataset; the folder itself is left as it is."""
    enter_training_side()
    from tasks.dataset_repo import add_dataset
    from tasks.settings import load_site_settings

    pin = add_dataset(folder, load_site_settings().datasets, name, message)
    typer.echo(
        f"{pin.name}: revision {pin.commit}, {pin.dvc_hash}, {pin.file_count} files, {pin.size_bytes / 2**20:.1f} MiB"
    )


@dataset_app.command("list")
def list_all() -> None:
    """Datasets of this machine and their newest revisions."""
    enter_training_side()
    from tasks.dataset_repo import list_datasets
    from tasks.settings import load_site_settings

    for entry in list_datasets(load_site_settings().datasets):
        typer.echo(f"{entry.name}: revision {entry.pin.commit[:12]}, {entry.pin.file_count} files, {entry.message}")


def validate(
    folder: Annotated[Path, typer.Argument(help="Folder in the YOLO layout, with data.yaml.")], as_json: AsJson = False
) -> None:
    """Hold a dataset against the data contracts. Exit 0 accepted, 1 rejected, 2 could not run."""
    settings = enter_training_side()
    from deployments.params import load_params
    from tasks.data_report import render_table
    from tasks.validate import validate_folder

    if not folder.is_dir():
        raise InvalidInput(Problem(str(folder), "a dataset folder", "no folder", "Name an existing one."))
    logging.getLogger("great_expectations").setLevel(logging.WARNING)  # its housekeeping is no news to a person
    report = validate_folder(folder.absolute(), load_params(settings.project / "params.yaml").job.validation)
    typer.echo(report.model_dump_json(indent=2) if as_json else render_table(report))
    if not report.accepted:
        raise typer.Exit(REJECTED)


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
