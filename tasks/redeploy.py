"""Step: an inference host takes over a release. Runs on the inference side; the host agent does the work."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from prefect import get_run_logger, task
from pydantic import Field

from data_contracts.base import Contract, Sha256
from data_contracts.errors import BundleError, Problem, ReleaseError
from data_contracts.release import HostReport, Intent, IntentOutcome
from serving.bundle import open_bundle
from serving.settings import load_host_settings
from serving.store import ReleaseStore, host_report
from tasks.channel import ReleaseChannel
from tasks.settings import load_site_settings

POLL_S = 0.2


class RedeployConfig(Contract):
    """How long a host may take to change its release."""

    converge_timeout_s: float = Field(
        allow_inf_nan=False,
        ge=5,
        le=3600,
        description="Seconds until every worker of the host must answer with the release.",
    )


def new_intent(
    kind: Literal["activate", "rollback"], digest: str | None, reason: str, requested_by: str, deadline_s: float
) -> Intent:
    """A wish with an identity of its own."""
    intent_id = f"{kind}-{uuid.uuid4().hex[:12]}"
    return Intent(
        intent_id=intent_id, kind=kind, digest=digest, reason=reason, requested_by=requested_by, deadline_s=deadline_s
    )


def fetch_bundle(store: ReleaseStore, channel: ReleaseChannel, digest: str) -> Path:
    """The verified bundle in this host's store, copied from the channel where it is not there yet."""
    source = channel.bundle_path(digest)
    if source.is_dir():
        return store.add_bundle(source, digest).path
    with suppress(ReleaseError):
        return store.bundle(digest).path
    raise BundleError(
        Problem(
            f"bundle {digest[:12]}",
            f"a folder {source}",
            "nothing there",
            "Publish it: run the `promote` flow for its version.",
        )
    )


def fetch_probe_set(store: ReleaseStore, channel: ReleaseChannel, digest: str) -> Path | None:
    """The verified probe set in this host's store, copied from the channel where it is not there yet.

    None where the channel has none: the host can then only use FP32 ONNX Runtime, and says so. Raises BundleError when
    what the channel has is not what the bundle names.
    """
    with suppress(BundleError):
        return store.probe_set(digest).path
    source = channel.probe_path(digest)
    return store.add_probe_set(source, digest).path if source.is_dir() else None


def watch_intent(
    store: ReleaseStore, intent: Intent, say: Callable[[str], None], grace_s: float = 10.0
) -> IntentOutcome:
    """Wait for the agent's word on `intent`, telling what changes meanwhile.

    Raises ReleaseError when the agent says nothing until `grace_s` after the intent's deadline.
    """
    deadline = time.monotonic() + intent.deadline_s + grace_s
    told = ""
    while (outcome := store.outcome(intent.intent_id)) is None:
        if time.monotonic() > deadline:
            raise ReleaseError(
                Problem(
                    f"intent {intent.intent_id}",
                    f"an outcome within {intent.deadline_s:g} s",
                    "none",
                    "See whether the host agent runs (`passline status`) and its log.",
                )
            )
        if (now := describe_host(host_report(store, "host"))) != told:
            say(told := now)
        time.sleep(POLL_S)
    say(f"{outcome.status}: {outcome.message}")
    return outcome


def describe_host(report: HostReport) -> str:
    """One line: what is wanted and what each worker holds."""
    desired = report.desired
    wanted = f"generation {desired.generation}: active {_short(desired.active)}"
    if desired.candidate:
        wanted += f", candidate {_short(desired.candidate)} ({desired.candidate_mode})"
    workers = [
        f"{worker.worker_id} answers with {_short(worker.active)}, holds {[_short(r.digest) for r in worker.loaded]}"
        for worker in report.workers
    ]
    return "; ".join([wanted, *(workers or ["no live worker"])])


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "nothing"


def require_converged(report: HostReport) -> HostReport:
    """`report`, when its intent was carried out. Raises ReleaseError with the agent's words when it was not."""
    if report.outcome is None or report.outcome.status != "converged":
        raise ReleaseError(report.outcome.message if report.outcome else "the host agent said nothing")
    return report


@task(name="fetch and verify the bundle", retries=3, retry_delay_seconds=[1, 3, 10], log_prints=True)
def fetch_release(digest: Sha256) -> str:
    """Bring the bundle and its probe set into this host's store; returns the bundle's path there."""
    store, channel = ReleaseStore(load_host_settings().store), ReleaseChannel(load_site_settings().channel)
    path = fetch_bundle(store, channel, digest)
    manifest, logger = open_bundle(path).manifest, get_run_logger()
    logger.info("bundle %s verified: %d files", digest[:12], len(manifest.files))
    if manifest.probe_set is None or fetch_probe_set(store, channel, manifest.probe_set) is None:
        logger.warning("bundle %s comes without a probe set: this host uses FP32 ONNX Runtime only", digest[:12])
    return str(path)


@task(name="hand the agent an intent and watch")
def carry_out(
    kind: Literal["activate", "rollback"], digest: str | None, reason: str, requested_by: str, config: RedeployConfig
) -> HostReport:
    """Submit the intent, follow it to its end, and return the host's report."""
    logger = get_run_logger()
    host = load_host_settings()
    store = ReleaseStore(host.store)
    intent = new_intent(kind, digest, reason, requested_by, config.converge_timeout_s)
    store.submit(intent)
    outcome = watch_intent(store, intent, logger.info)
    return host_report(store, host.host_name, outcome)


@task(name="read the host's state")
def read_host() -> HostReport:
    """What this host serves now."""
    host = load_host_settings()
    return host_report(ReleaseStore(host.store), host.host_name)
