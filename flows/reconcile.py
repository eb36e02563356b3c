"""Outcome: the registry's aliases say what the inference host serves. Runs on pool `training`, queue `control`."""

from __future__ import annotations

from prefect import flow

from tasks.promote import promotion_lease
from tasks.reconcile import ReconcileConfig, Reconciliation, ask_host, follow_host


@flow(name="reconcile", description=__doc__)
def reconcile(config: ReconcileConfig) -> Reconciliation:
    """Ask the host, then let the aliases follow; never while a promotion is under way."""
    with promotion_lease(config.host_timeout_s):
        return follow_host(ask_host(config))
