"""Commands that bring annotations of other tools into the dataset layout: `passline dataset import`."""

from __future__ import annotations

import typer


def register(dataset_app: typer.Typer) -> None:
    """Add the commands of this module."""
