"""`python -m deployments.worker POOL`: a Prefect worker that starts without a flood of missed runs."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from contextlib import suppress

from data_contracts.errors import OutsideSystemError, Problem

API_TIMEOUT_S = 280.0
TRAINING_POOL = "training"


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


async def work(pool: str) -> None:
    """Take runs of the pool until told to stop."""
    from prefect.utilities.processutils import setup_signal_handlers_worker

    from deployments.jobs_host import host_resources
    from deployments.jobs_worker import JobsWorker

    setup_signal_handlers_worker(os.getpid(), f"the worker of pool {pool}", print)
    host_resources(os.environ)  # a wrong setting stops the start, not the first job
    worker = JobsWorker(pool, name=worker_name(pool), resources=lambda: host_resources(os.environ))
    await worker.start()


def worker_name(pool: str) -> str:
    """One worker per pool and host; the name is how it knows its runs after a restart."""
    return f"{pool}-{socket.gethostname()}"


def main(pool: str) -> None:
    """Give up runs whose process is gone, cancel the backlog that a later run catches up for, then take runs.

    That of the training pool also sees that every bad end is attended to.
    """
    os.environ.setdefault("PREFECT_WORKER_QUERY_SECONDS", "2")  # before Prefect is imported
    from deployments.missed_ends import keep_looking
    from tasks.backlog import cancel_backlog
    from tasks.orphans import give_up_orphans
    from tasks.settings import load_site_settings

    wait_for_api()
    print(f"gave up {len(give_up_orphans(load_site_settings().runs))} runs whose process is gone", flush=True)
    print(f"cancelled {cancel_backlog()} missed scheduled runs that a later one catches up for", flush=True)
    if pool == TRAINING_POOL:
        keep_looking(worker_name(pool))
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(work(pool))


if __name__ == "__main__":
    main(sys.argv[1])
