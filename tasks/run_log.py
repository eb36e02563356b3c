"""The log of the run that a step is part of."""

from __future__ import annotations

import logging

from prefect import get_run_logger
from prefect.exceptions import MissingContextError


def current_logger() -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
    """Prefect's logger of this run, or a plain one outside a run."""
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("passline")
