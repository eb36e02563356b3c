"""Outcome: a gated version is champion and the host answers with it. Runs on pool `training`, queue `control`."""

from __future__ import annotations

from prefect import flow

from data_contracts.base import Name
from data_contracts.release import HostReport
from tasks.artifacts import leave_markdown, markdown_table
from tasks.promote import PromoteConfig, call_redeploy, promotion_lease, publish_version, record_promotion


@flow(name="promote", description=__doc__)
def promote(name: Name, version: int, reason: str, config: PromoteConfig) -> HostReport:
    """Gates re-checked -> bundle published -> hosts converge -> aliases move."""
    with promotion_lease(config.lease_timeout_s):
        promotion = publish_version(name, version)
        report = call_redeploy(promotion.version.digest, reason, config)
        record_promotion(promotion, report, reason)
    before = f"version {promotion.champion.number}" if promotion.champion else "none"
    rows = [
        ("champion before", before),
        ("champion now", f"version {version}"),
        ("digest", promotion.version.digest),
        ("rule", promotion.rule),
        ("reason", reason),
    ]
    leave_markdown("promotion", markdown_table(["what", "value"], rows), f"{name} version {version} promoted")
    return report
