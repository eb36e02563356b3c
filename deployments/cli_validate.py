"""`passline validate`: hold a dataset against the data contracts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from data_contracts.errors import InvalidInput, Problem
from deployments.cli_training import enter_training_side

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
REJECTED = 1


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(validate)


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
