"""Outcome: this inference host has a live service and agent that run what is installed. Runs on pool `inference`."""

from __future__ import annotations

from prefect import flow

from data_contracts.release import HostReport
from tasks.artifacts import leave_host_report
from tasks.ensure_service import EnsureServiceConfig, ensure_service_running
from tasks.redeploy import read_host


@flow(name="ensure_service", description=__doc__)
def ensure_service(config: EnsureServiceConfig) -> HostReport:
    """Start what is down; drain and restart what is out of date; report."""
    ensure_service_running(config)
    report = read_host()
    leave_host_report(report)
    return report
