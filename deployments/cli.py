"""`passline`: one command line for both sides.

`inspect`, `release`, `status` and `bundle` need no more than the serving environment; the others say what they lack.
"""

from __future__ import annotations

import sys

import typer

from data_contracts.errors import PasslineError
from deployments import cli_dataset, cli_resume, cli_serving, cli_stack, cli_training, cli_validate

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Visual defect inspection for production lines.")
for module in (cli_stack, cli_dataset, cli_validate, cli_training, cli_resume, cli_serving):
    module.register(app)

COULD_NOT_RUN = 2


def main() -> None:
    """Entry point: errors that we raise on purpose are told in words, without a traceback."""
    try:
        app()
    except PasslineError as error:
        print(f"passline: {error}", file=sys.stderr)
        sys.exit(COULD_NOT_RUN)
    except ModuleNotFoundError as error:
        print(f"passline: this environment has no {error.name}; use the one from `make setup` (.venv)", file=sys.stderr)
        sys.exit(COULD_NOT_RUN)
    except KeyboardInterrupt:
        print("passline: stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
