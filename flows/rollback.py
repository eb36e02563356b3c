"""Outcome: this inference host answers with its previous release again. Runs on pool `inference`, queue `urgent`."""

from __future__ import annotations

from prefect import flow

from data_contracts.release import HostReport
from tasks.artifacts import leave_host_report
from tasks.redeploy import RedeployConfig, carry_out, require_converged


@flow(name="rollback", description=__doc__)
def rollback(reason: str, config: RedeployConfig) -> HostReport:
    """Back to the previous release, at once; `reconcile` lets the registry follow."""
    report = carry_out("rollback", None, reason, "rollback flow", config)
    leave_host_report(report)
    return require_converged(report)
