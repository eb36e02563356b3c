"""Commands of the inference host: they work in the serving environment."""

from __future__ import annotations

import getpass
import json
import os
import uuid
from pathlib import Path
from typing import Annotated

import typer

from data_contracts.errors import InvalidInput, Problem, ServiceManagerError
from data_contracts.release import Intent, IntentOutcome
from serving.settings import HOST_ENV_FILE, HostSettings, load_host_settings

release_app = typer.Typer(no_args_is_help=True, help="The release of this inference host.")
bundle_app = typer.Typer(no_args_is_help=True, help="Release bundles.")
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Reason = Annotated[str, typer.Option(help="Why; kept in the release state.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("inspect")(inspect_pictures)
    app.command()(status)
    app.add_typer(release_app, name="release")
    app.add_typer(bundle_app, name="bundle")


def inspect_pictures(
    images: Annotated[list[Path], typer.Argument(help="Picture files, or folders of them.")],
    url: Annotated[str | None, typer.Option(help="Service that answers; default: this host's.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="Bundle folder that answers instead of a service.")] = None,
    annotate: Annotated[Path | None, typer.Option(help="Folder for drawings with boxes.")] = None,
    as_json: AsJson = False,
) -> None:
    """Inspect pictures. Exit 0: every one was inspected; 1: one could not be; 2: nobody answers, or a bad bundle.

    All pictures are reported, those that could not be inspected with the reason; with --json in one list on stdout.
    """
    from serving.inspect_files import inspect_files

    if url is None and bundle is None:
        url = _host().url
    results = inspect_files(images, url=url, bundle=bundle, annotate_dir=annotate)
    if as_json:
        typer.echo(json.dumps([result.model_dump(mode="json") for result in results], indent=2))
    else:
        for result in results:
            if result.answer is not None:
                found = ", ".join(f"{d.class_name} {d.score:.2f}" for d in result.answer.detections)
                typer.echo(f"{result.file}: {result.answer.verdict.value}  {found or 'no defect'}")
            if result.error is not None:
                failed = "not inspected" if result.answer is None else "not drawn"
                typer.echo(f"{result.file}: {failed}: {result.error}", err=True)
    if any(result.error is not None for result in results):
        raise typer.Exit(1)


def status(as_json: AsJson = False) -> None:
    """What runs here: service, agent and release, and the local stack's processes where there are any."""
    from serving.status import is_live, is_ready, service_status

    host = _host()
    url = host.url
    found = service_status(url)
    processes = _processes()
    facts = {
        "processes": processes,
        "service": url,
        "live": is_live(url),
        "ready": is_ready(url),
        "release": found.model_dump(mode="json") if found else None,
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    typer.echo(f"service   {url}  {'ready' if facts['ready'] else 'live, not ready' if facts['live'] else 'down'}")
    if found is not None:
        active = f"{found.active.name} {found.active.version} ({found.active.digest[:12]})" if found.active else "none"
        typer.echo(f"release   {active}, generation {found.generation}, previous {(found.previous or 'none')[:12]}")
        engine = f"{found.provider or 'none'} {found.precision or ''}".strip()
        layout = f"{found.streams} calls at once, each with threads: {found.threads}, pictures: up to {found.max_batch}"
        typer.echo(f"engine    {engine}, {layout}")
        deferred = found.tuning.deferred if found.tuning else ""
        for word in filter(None, [found.reason, *found.degraded, deferred]):
            typer.echo(f"note      {word}")
    for name, state in processes.items():
        typer.echo(f"process   {name:<17} {state}")


def _host() -> HostSettings:
    """This host's settings: the local stack's when the command runs in its project folder, else the environment's."""
    file = Path(os.environ.get("PASSLINE_HOME", "var")) / "host.env"
    return load_host_settings({HOST_ENV_FILE: str(file), **os.environ} if file.is_file() else None)


def _processes() -> dict[str, str]:
    """State of each process of the local stack; empty where there is none, or no Supervisor (a serving environment)."""
    from deployments.environment import load_stack_settings
    from deployments.stack import Stack

    try:
        return {state.name: f"{state.state} {state.detail}" for state in Stack(load_stack_settings()).manager.states()}
    except (InvalidInput, ServiceManagerError, ModuleNotFoundError):
        return {}


@release_app.command("show")
def show_release(as_json: AsJson = False) -> None:
    """The desired state of this host and what each worker does about it."""
    from serving.store import ReleaseStore, host_report

    host = _host()
    report = host_report(ReleaseStore(host.store), host.host_name)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
        return
    desired = report.desired
    typer.echo(f"host {report.host}: generation {desired.generation}, {desired.reason or 'no reason given'}")
    typer.echo(f"  active    {desired.active or 'none'}")
    typer.echo(f"  candidate {desired.candidate or 'none'}")
    typer.echo(f"  previous  {desired.previous or 'none'}")
    for worker in report.workers:
        typer.echo(f"  worker {worker.worker_id} (pid {worker.pid}) answers with {worker.active or 'nothing'}")


@release_app.command("activate")
def activate(digest: str, reason: Reason = "by hand") -> None:
    """Make a bundle of this host's store the active one, without a restart."""
    _carry_out("activate", digest, reason)


@release_app.command("rollback")
def roll_back(reason: Reason = "by hand") -> None:
    """Return to the previous release, without the control plane."""
    _carry_out("rollback", None, reason)


@release_app.command("import")
def import_bundle(
    folder: Path,
    probe: Annotated[
        Path | None, typer.Option(help="Its probe set; default: ../probes/<digest> beside the folder of bundles.")
    ] = None,
) -> None:
    """Verify a bundle with its probe set and bring both into this host's store."""
    from serving.importing import import_release
    from serving.store import ReleaseStore

    store = ReleaseStore(_host().store)
    store.prepare()
    imported = import_release(store, folder, probe)
    typer.echo(imported.digest)
    if imported.note:
        typer.echo(f"note: {imported.note}", err=True)


def _carry_out(kind: str, digest: str | None, reason: str) -> None:
    from serving.store import ReleaseStore, wait_for_outcome

    store = ReleaseStore(_host().store)
    intent = Intent.model_validate(
        {
            "intent_id": f"{kind}-{uuid.uuid4().hex[:12]}",
            "kind": kind,
            "digest": digest,
            "reason": reason,
            "requested_by": getpass.getuser(),
        }
    )
    store.submit(intent)
    outcome: IntentOutcome = wait_for_outcome(store, intent.intent_id, intent.deadline_s + 10)
    typer.echo(f"{outcome.status}: {outcome.message}")
    if outcome.status != "converged":
        raise typer.Exit(1)


@bundle_app.command("verify")
def verify(folder: Path) -> None:
    """Check every file of a bundle, and that its model reproduces the golden pictures. Exit 2 when it does not."""
    from serving.bundle import open_bundle
    from serving.cpus import threads_from_quota
    from serving.detector import check_golden, open_detector
    from serving.engines import EngineOptions

    if not folder.is_dir():
        raise InvalidInput(Problem(str(folder), "a bundle folder", "no folder", "Name an existing one."))
    bundle = open_bundle(folder)
    check_golden(
        open_detector(bundle, EngineOptions("cpu", allow_fallback=False, threads=threads_from_quota(1))), bundle
    )
    manifest = bundle.manifest
    held = f"{len(manifest.files)} files verified, golden pictures reproduced"
    typer.echo(f"{bundle.digest}  {manifest.name} {manifest.version}: {held}")
