"""Commands on dataset repositories: `passline dataset ..`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deployments import cli_import
from deployments.cli_training import enter_training_side

dataset_app = typer.Typer(no_args_is_help=True, help="Dataset repositories (git + DVC).")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    cli_import.register(dataset_app)
    app.add_typer(dataset_app, name="dataset")


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
