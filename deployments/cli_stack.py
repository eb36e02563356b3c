"""Commands of the local stack, the demo and the benchmarks."""

from __future__ import annotations

import runpy
import sys
from typing import Annotated

import typer

from deployments.cli_training import enter_training_side
from deployments.environment import load_stack_settings

JUST_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True}


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(up)
    app.command()(down)
    app.command()(demo)
    app.command(context_settings=JUST_ARGUMENTS)(bench)


def up() -> None:
    """Start the local stack and apply prefect.yaml."""
    settings = enter_training_side()
    from deployments.deploy import deploy
    from deployments.stack import Stack, check_tools

    check_tools()
    Stack(settings).up(typer.echo)
    deploy(settings.project)
    typer.echo(f"Prefect  {settings.prefect_url}\nMLflow   {settings.mlflow_url}\nservice  {settings.service_url}")


def down() -> None:
    """Stop the local stack; nothing of it stays running."""
    from deployments.stack import Stack

    Stack(load_stack_settings()).down(typer.echo)
    typer.echo("the stack is down")


def demo() -> None:
    """Run the main job: data, training, gates, promotion, inspection. Leaves the stack up."""
    enter_training_side()
    from deployments.demo.run import run_demo

    run_demo(typer.echo)


def bench(context: typer.Context, name: Annotated[str, typer.Argument(help="Benchmark, e.g. pipeline.")]) -> None:
    """Run a benchmark: `passline bench NAME [--quick] [--json FILE]`."""
    sys.argv = [f"benchmarks.{name}", *context.args]
    runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
