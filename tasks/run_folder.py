"""The name and the working folder of a flow run."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from prefect.runtime import flow_run


def run_name() -> str:
    """The name that Prefect gave the flow run; "by-hand" outside one."""
    return flow_run.name or "by-hand"


def run_folder(runs: Path) -> Path:
    """`<runs>/<flow run id>`, made when missing; a name of its own outside a flow run."""
    folder = runs / str(flow_run.id or uuid4())
    folder.mkdir(parents=True, exist_ok=True)
    return folder
