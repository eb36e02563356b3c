"""Flow runs of the Prefect server, whole: it names a limited number per call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

AT_ONCE = 200
"""Runs that the server names per call."""


def read_all(client: SyncPrefectClient, **wanted: Any) -> list[FlowRun]:
    """All runs that fit; `wanted` are the filters and the order of the client's `read_flow_runs`."""
    found: list[FlowRun] = []
    while page := client.read_flow_runs(**wanted, limit=AT_ONCE, offset=len(found)):
        found += page
    return found
