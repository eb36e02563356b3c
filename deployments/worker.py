"""`python -m deployments.worker POOL`: a Prefect process worker that starts without a flood of missed runs."""

from __future__ import annotations

import os
import sys
import time

from data_contracts.errors import OutsideSystemError, Problem

API_TIMEOUT_S = 280.0


def wait_for_api() -> None:
    """Wait for the Prefect server. Raises OutsideSystemError when it does not answer in time."""
    from prefect.client.orchestration import get_client

    deadline = time.monotonic() + API_TIMEOUT_S
    with get_client(sync_client=True) as client:
        while (error := client.api_healthcheck()) is not None:
            if time.monotonic() > deadline:
                raise OutsideSystemError(
                    Problem(
                        f"Prefect server at {client.api_url}",
                        "an answer",
                        str(error),
                        "Start it, or set PREFECT_API_URL.",
                    )
                )
            time.sleep(0.5)


def main(pool: str) -> None:
    """Cancel the backlog that a later run catches up for, then become the worker."""
    from tasks.backlog import cancel_backlog

    wait_for_api()
    print(f"cancelled {cancel_backlog()} missed scheduled runs that a later one catches up for", flush=True)
    os.environ.setdefault("PREFECT_WORKER_QUERY_SECONDS", "2")
    os.execv(  # noqa: S606 - no shell on purpose: the worker takes our place and the manager's signals
        sys.executable,
        [
            sys.executable,
            "-m",
            "prefect",
            "worker",
            "start",
            "--pool",
            pool,
            "--type",
            "process",
            "--name",
            f"{pool}-worker",
        ],
    )


if __name__ == "__main__":
    main(sys.argv[1])
