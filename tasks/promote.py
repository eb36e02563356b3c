"""Step: a gated version becomes champion. Runs on the training side; aliases follow what the hosts report.

Order: gates re-checked -> bundle published -> hosts converge -> aliases. A cut between the last two is mended by
`reconcile`, which follows the hosts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from prefect import get_run_logger, task
from pydantic import Field, ValidationError

from data_contracts.base import Contract, Name
from data_contracts.bundle import ATTESTATIONS_DIR, Attestation
from data_contracts.errors import OutsideSystemError, Problem, ReleaseError, raise_if_any
from data_contracts.release import HostReport, now
from serving.bundle import Bundle, open_bundle
from serving.probe_files import open_probe_set
from tasks.artifacts import find_host_report
from tasks.channel import ReleaseChannel
from tasks.gates import GateReport
from tasks.registry import RegisteredVersion, Registry
from tasks.settings import load_site_settings

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

REDEPLOY = "redeploy/redeploy"
ENSURE_SERVICE = "ensure_service/ensure_service"
LEASE = "passline-promotion"
GATES = "gates"


class PromoteConfig(Contract):
    """How long a promotion may wait."""

    redeploy_timeout_s: float = Field(
        ge=10, le=3600, description="Seconds until the inference host must have switched."
    )
    lease_timeout_s: float = Field(ge=1, le=3600, description="Seconds to wait for another promotion to end.")


@dataclass(frozen=True)
class Promotion:
    """What is to be promoted. `published` is the bundle's folder in the channel; `rule` is what allows it."""

    version: RegisteredVersion
    champion: RegisteredVersion | None
    published: Path
    rule: str


@contextmanager
def promotion_lease(timeout_s: float) -> Iterator[None]:
    """Only one promotion at a time, over all runs and workers. The lease ends with its holder."""
    from prefect.concurrency.sync import concurrency

    with concurrency(LEASE, occupy=1, timeout_seconds=timeout_s, strict=True):
        yield


def find_version(registry: Registry, name: Name, number: int) -> RegisteredVersion:
    """Version `number` of the model `name`. Raises ReleaseError when there is none."""
    known = registry.versions(name)
    for version in known:
        if version.number == number:
            return version
    raise ReleaseError(
        Problem(
            f"model {name}",
            f"version {number}",
            f"versions {[version.number for version in known]}",
            "Name one of them.",
        )
    )


def attested_report(bundle: Bundle) -> GateReport:
    """The gate decision that the bundle carries. Raises ReleaseError where there is none that can be read."""
    file = bundle.path / ATTESTATIONS_DIR / f"{GATES}.json"
    subject = f"gate attestation of bundle {bundle.digest[:12]}"
    if not file.is_file():
        action = "Run `retrain`; only gated bundles are promoted."
        raise ReleaseError(Problem(subject, "a report of passed gates", "none", action))
    try:
        return GateReport.model_validate(Attestation.model_validate_json(file.read_bytes()).statement)
    except ValidationError as error:
        got = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
        raise ReleaseError(Problem(subject, "a whole gate report", got, "Run `retrain` again.")) from error


def objections(report: GateReport, digest: str, champion_digest: str | None) -> list[Problem]:
    """Why the report does not allow to promote the bundle `digest` today; empty when it does.

    A champion that came since is no detail: nothing is known of the candidate against it, so it is compared first.
    """
    subject = f"gate attestation of bundle {digest[:12]}"
    found = []
    if report.digest != digest:
        found.append(Problem(subject, "a report about it", f"one about {report.digest[:12]}", "Run `retrain` again."))
    if not report.accepted:
        reasons = "; ".join(check.words for check in report.refusals)
        found.append(Problem(subject, "accepted", f"rejected: {reasons}", "Retrain with better data or settings."))
    if report.champion != champion_digest and champion_digest != digest:
        expected = f"a comparison with today's champion {_short(champion_digest)}"
        action = "The champion changed since the comparison: run `retrain` again, it compares with today's."
        found.append(Problem(subject, expected, f"one with {_short(report.champion)}", action))
    return found


def rule_words(report: GateReport) -> str:
    """What allows the promotion: what the candidate has shown, or that a person wanted it without."""
    return report.rule if report.promotable else f"by hand: {report.rule} was not shown"


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "none"


def move_aliases(registry: Registry, version: RegisteredVersion, champion: RegisteredVersion | None) -> None:
    """champion := version, previous := the champion before. `previous` first: a cut leaves a champion that serves."""
    if champion is not None and champion.number != version.number:
        registry.set_alias(version.name, "previous", champion.number)
    registry.set_alias(version.name, "champion", version.number)
    candidate = registry.get_alias(version.name, "candidate")
    if candidate is not None and candidate.number == version.number:
        registry.delete_alias(version.name, "candidate")


def publish_release(
    registry: Registry, version: RegisteredVersion, bundle: Bundle, channel: ReleaseChannel, scratch: Path
) -> Path:
    """Put the version's bundle into the channel, its probe set first: a host that finds the one finds the other."""
    if (probe_digest := bundle.manifest.probe_set) is not None:
        channel.publish_probe_set(open_probe_set(registry.download_probe_set(version, scratch), probe_digest))
    return channel.publish(bundle)


@task(name="re-check gates and publish the bundle", retries=2, retry_delay_seconds=2)
def publish_version(name: Name, number: int) -> Promotion:
    """Take the version's bundle from the registry, check that it may be promoted today, publish it to the channel."""
    settings = load_site_settings()
    registry = Registry(settings.mlflow_url)
    version, champion = find_version(registry, name, number), registry.champion(name)
    settings.runs.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=settings.runs) as folder:
        bundle = open_bundle(registry.download_bundle(version, Path(folder)), version.digest)
        report = attested_report(bundle)
        raise_if_any(ReleaseError, objections(report, bundle.digest, champion.digest if champion else None))
        published = publish_release(registry, version, bundle, ReleaseChannel(settings.channel), Path(folder))
    get_run_logger().info("published %s version %d, bundle %s", name, number, version.digest[:12])
    return Promotion(version, champion, published, rule_words(report))


@task(name="let the inference host take over")
def call_redeploy(digest: str, reason: str, config: PromoteConfig) -> HostReport:
    """Run `redeploy` on the inference pool and return the host's report.

    Raises ReleaseError when it did not end in time or the host does not answer with `digest`.
    """
    run_id = call_deployment(REDEPLOY, {"digest": digest, "reason": reason}, config.redeploy_timeout_s)
    report = find_host_report(run_id)
    if report.serving_digest != digest:
        outcome = report.outcome.message if report.outcome else "no outcome"
        raise ReleaseError(
            Problem(
                f"host {report.host}",
                f"to answer with {digest[:12]}",
                f"{_short(report.serving_digest)} ({outcome})",
                "The aliases stay as they are. See the redeploy run's log.",
            )
        )
    return report


def call_deployment(name: str, parameters: Mapping[str, Any], timeout_s: float) -> UUID:
    """Run a deployment to its end and return the id of its run. Never waits longer than `timeout_s`.

    Raises OutsideSystemError when the run did not end in time (it is cancelled) or did not complete.
    """
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment
    from prefect.states import Cancelling

    run = cast("FlowRun", run_deployment(name, parameters=dict(parameters), timeout=timeout_s, poll_interval=1))
    if run.state is None or not run.state.is_final():
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(run.id, Cancelling(message=f"not done within {timeout_s:g} s"), force=True)
        raise OutsideSystemError(
            Problem(
                f"{name} run {run.name}",
                f"to end within {timeout_s:g} s",
                f"state {run.state and run.state.name}",
                "Check that the worker of its pool runs (`passline status`).",
            )
        )
    if not run.state.is_completed():
        raise OutsideSystemError(
            Problem(
                f"{name} run {run.name}", "Completed", f"{run.state.name}: {run.state.message}", "See the run's log."
            )
        )
    return UUID(str(run.id))


@task(name="move the aliases", retries=3, retry_delay_seconds=2)
def record_promotion(promotion: Promotion, report: HostReport, reason: str) -> None:
    """Follow the hosts: move the aliases and write who serves what, since when and why onto the version."""
    registry = Registry(load_site_settings().mlflow_url)
    version, champion = promotion.version, promotion.champion
    move_aliases(registry, version, champion)
    record = {
        "at": now().isoformat(),
        "from_digest": champion.digest if champion else None,
        "to_digest": version.digest,
        "host": report.host,
        "generation": report.desired.generation,
        "rule": promotion.rule,
        "reason": reason,
    }
    registry.set_version_tags(version.name, version.number, {"passline.promotion": json.dumps(record, sort_keys=True)})
    get_run_logger().info("champion of %s: version %d", version.name, version.number)
