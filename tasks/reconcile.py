"""Step: the registry's aliases agree with what the inference host serves. The host is right; the alias follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prefect import get_run_logger, task
from pydantic import Field

from data_contracts.base import Contract
from data_contracts.errors import Problem, RegistryError
from data_contracts.release import HostReport
from tasks.artifacts import find_host_report
from tasks.promote import ENSURE_SERVICE, call_deployment, move_aliases
from tasks.registry import RegisteredVersion, Registry
from tasks.settings import load_site_settings


class ReconcileConfig(Contract):
    """How long to wait for the inference host."""

    host_timeout_s: float = Field(ge=10, le=3600, description="Seconds until the host must have reported.")


@dataclass(frozen=True)
class Reconciliation:
    """What was found. `champion` is the version that shall be champion, None where nothing has to change."""

    words: str
    champion: RegisteredVersion | None = None


def plan(
    report: HostReport, aliases: Mapping[str, RegisteredVersion], versions: Sequence[RegisteredVersion]
) -> Reconciliation:
    """Compare a host with the registry. Raises RegistryError when the host serves what the registry does not know."""
    serving = report.serving_digest
    if serving is None:
        return Reconciliation(f"host {report.host} serves nothing, or its workers differ: aliases stay")
    champion = aliases.get("champion")
    if champion is not None and champion.digest == serving:
        return Reconciliation(f"host {report.host} serves the champion, version {champion.number}")
    known = next((version for version in versions if version.digest == serving), None)
    if known is None:
        raise RegistryError(
            Problem(
                f"host {report.host}",
                "a digest of a registered version",
                serving,
                "Activate a registered release on the host, or restore the version in the registry.",
            )
        )
    was = f"version {champion.number}" if champion else "nothing"
    return Reconciliation(f"host {report.host} serves version {known.number}, champion was {was}", known)


def served_model(report: HostReport) -> str | None:
    """Registry name of the model that the host serves."""
    names = {r.name for worker in report.workers for r in worker.loaded if r.digest == report.serving_digest}
    return names.pop() if len(names) == 1 else None


@task(name="ask the inference host")
def ask_host(config: ReconcileConfig) -> HostReport:
    """Have the inference side report, through its own pool."""
    return find_host_report(call_deployment(ENSURE_SERVICE, {}, config.host_timeout_s))


@task(name="make the aliases agree", retries=3, retry_delay_seconds=2)
def follow_host(report: HostReport) -> Reconciliation:
    """Move the aliases where they differ from what the host serves."""
    registry = Registry(load_site_settings().mlflow_url)
    name = served_model(report)
    if name is None:
        return Reconciliation(f"host {report.host} serves no model")
    aliases = registry.aliases(name)
    result = plan(report, aliases, registry.versions(name))
    if result.champion is not None:
        move_aliases(registry, result.champion, aliases.get("champion"))
        registry.set_version_tags(name, result.champion.number, {"passline.reconciled": result.words})
    get_run_logger().info(result.words)
    return result
