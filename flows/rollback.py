"""Outcome: this inference host answers with its previous release again. Runs on pool `inference`, queue `urgent`."""

from __future__ import annotations

from prefect import flow

from data_contracts.errors import ReleaseError
from data_contracts.release import HostReport
from tasks.artifacts import leave_host_report
from tasks.redeploy import RedeployConfig, carry_out


@flow(name="rollback", description=__doc__)
def rollback(reason: str, config: RedeployConfig) -> HostReport:
    """Back to the previous release, at once; `reconcile` lets the registry follow."""
    report = carry_out("rollback", None, reason, "rollback flow", config)
    leave_host_report(report)
    if report.outcome is None or report.outcome.status != "converged":
        raise ReleaseError(report.outcome.message if report.outcome else "the host agent said nothing")
    return report
