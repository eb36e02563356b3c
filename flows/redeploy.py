"""Outcome: this inference host answers with the given release. Runs on pool `inference`."""

from __future__ import annotations

from prefect import flow

from data_contracts.base import Sha256
from data_contracts.release import HostReport
from flows.ensure_service import ensure_service
from tasks.artifacts import leave_host_report
from tasks.ensure_service import EnsureServiceConfig
from tasks.redeploy import RedeployConfig, carry_out, fetch_release, require_converged


@flow(name="redeploy", description=__doc__)
def redeploy(digest: Sha256, reason: str, config: RedeployConfig, service: EnsureServiceConfig) -> HostReport:
    """Service up -> bundle fetched and verified -> agent converges -> report."""
    ensure_service(service)
    fetch_release(digest)
    report = carry_out("activate", digest, reason, "redeploy flow", config)
    leave_host_report(report)
    return require_converged(report)
