"""Commands on dataset repositories: `passline dataset ..`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from data_contracts.errors import DatasetError, InvalidInput, Problem, raise_if_any
from deployments import cli_import
from deployments.cli_training import enter_training_side
from deployments.environment import load_stack_settings

if TYPE_CHECKING:
    from deployments.dataset_views import Revision
    from tasks.job import TrainingJob
    from tasks.settings import SiteSettings

dataset_app = typer.Typer(no_args_is_help=True, help="Dataset repositories (git + DVC).")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Name = Annotated[str, typer.Argument(help="Name of the dataset, or path or URL of its repository.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    cli_import.register(dataset_app)
    app.add_typer(dataset_app, name="dataset")


def _enter() -> SiteSettings:
    """The locations that all of these commands use."""
    enter_training_side()
    from tasks.settings import load_site_settings

    return load_site_settings()


def _job() -> TrainingJob:
    """The parameters of params.yaml, by which training reads and splits."""
    from deployments.params import load_params

    return load_params(load_stack_settings().project / "params.yaml").job


def _print(fields: dict[str, Any], text: str, as_json: bool) -> None:
    typer.echo(json.dumps(fields, indent=2, ensure_ascii=False) if as_json else text.rstrip("\n"))


@dataset_app.command("add")
def add(
    folder: Annotated[Path, typer.Argument(help="Folder with the dataset; it is only read.")],
    name: Annotated[str, typer.Option(help="Name of the dataset.")],
    message: Annotated[str, typer.Option(help="What is new.")] = "new revision",
    remote: Annotated[
        str | None, typer.Option(help="Where the content is kept: a folder or s3://bucket/prefix; set once.")
    ] = None,
    endpoint_url: Annotated[str | None, typer.Option(help="Address of an S3-compatible store.")] = None,
    source_format: Annotated[str, typer.Option("--format", help="Format of the annotations; auto finds out.")] = "yolo",
    new_classes: Annotated[
        bool, typer.Option("--new-classes", help="The class list is meant to differ from the revision before.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Pin a folder as the newest revision of a dataset; the folder itself is left as it is."""
    settings = _enter()
    from tasks.dataset_repo import add_dataset

    if not folder.is_dir():
        raise InvalidInput(Problem(str(folder), "a dataset folder", "no folder", "Name an existing one."))
    with tempfile.TemporaryDirectory(prefix="passline-import-") as draft:
        if source_format != "yolo":
            known = None if new_classes else _known_classes(settings, name)
            folder = _import(folder, source_format, Path(draft, "dataset"), known)
        pin = add_dataset(
            folder,
            settings.datasets,
            name,
            message,
            splits=_job().splits,
            remote=remote,
            endpoint_url=endpoint_url,
            new_classes=new_classes,
        )
    size = f"{pin.file_count} files, {pin.size_bytes / 2**20:.1f} MiB"
    _print(pin.model_dump(mode="json"), f"{pin.name}: revision {pin.commit}, {pin.dvc_hash}, {size}", as_json)


def _import(source: Path, source_format: str, target: Path, class_names: tuple[str, ...] | None) -> Path:
    """The source in the project's layout. Raises DatasetError with what its annotations lack."""
    from tasks.importers import detect_format, import_dataset

    source_format = detect_format(source) if source_format == "auto" else source_format
    if source_format == "yolo":
        return source
    imported = import_dataset(source, source_format, target, class_names, strict=True)
    raise_if_any(DatasetError, (str(finding) for finding in imported.findings if finding.severity == "error"))
    for finding in imported.findings:
        typer.echo(str(finding), err=True)
    return imported.folder


def _known_classes(settings: SiteSettings, name: str) -> tuple[str, ...] | None:
    """The class list of the newest revision, which an import must keep; None for a new dataset."""
    from tasks.importers import read_class_names

    data = settings.datasets / name / "data"
    return read_class_names(data) if data.is_dir() else None


@dataset_app.command("list")
def list_all(as_json: AsJson = False) -> None:
    """Datasets of this machine and their newest revisions."""
    settings = _enter()
    from deployments.dataset_views import entry_fields, list_text
    from tasks.dataset_repo import list_datasets

    entries = list_datasets(settings.datasets)
    _print({"datasets": [entry_fields(entry) for entry in entries]}, list_text(entries), as_json)


@dataset_app.command("show")
def show(
    name: Name,
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "HEAD",
    as_json: AsJson = False,
) -> None:
    """A revision: its pin, what is in it, the recorded split, and the revisions before it."""
    settings = _enter()
    from deployments.dataset_views import locate, open_revision, revisions_of, show_fields, show_text

    pin = locate(settings, name, revision)
    opened, entries = open_revision(settings, pin, _job().validation), revisions_of(pin)
    _print(show_fields(opened, entries), show_text(opened, entries), as_json)


@dataset_app.command("verify")
def verify(
    name: Name,
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "HEAD",
    as_json: AsJson = False,
) -> None:
    """Hash this machine's pinned copy of a revision again; one that somebody altered is made anew."""
    settings = _enter()
    from deployments.dataset_views import locate
    from tasks.dataset_repo import fetch
    from tasks.dataset_repo import verify as altered_files

    pin = locate(settings, name, revision)
    altered = altered_files(pin, settings.pinned)
    folder = fetch(pin, settings.pinned)
    words = f"{len(altered)} files were not as pinned: {', '.join(altered[:20])}" if altered else "as pinned"
    _print({"folder": str(folder), "altered": list(altered)}, f"{folder}: {pin.file_count} files, {words}", as_json)


@dataset_app.command("diff")
def diff(
    name: Name,
    old: Annotated[str | None, typer.Argument(help="Older revision; the one before NEW by default.")] = None,
    new: Annotated[str, typer.Argument(help="Newer revision.")] = "HEAD",
    report: Annotated[
        Path | None, typer.Option(help="Write the data report of NEW, with the change, to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What changed between two revisions: pictures, labels, classes, and what the pictures and boxes are like."""
    settings = _enter()
    from deployments.dataset_views import compared_pins, open_revision
    from tasks.reporting.drift import compare_scans
    from tasks.reporting.drift_text import drift_fields, render_drift

    job, pins = _job(), compared_pins(settings, name, old, new)
    before, after = (open_revision(settings, pin, job.validation) for pin in pins)
    drift = compare_scans(before.scan, after.scan)
    if report:
        _write_page(report, before, after, job)
    fields = {"old": before.pin.model_dump(mode="json"), "new": after.pin.model_dump(mode="json")}
    heading = f"{after.pin.name}: {before.pin.commit[:12]} to {after.pin.commit[:12]}\n\n"
    _print(fields | drift_fields(drift), heading + render_drift(drift), as_json)


def _write_page(target: Path, before: Revision, after: Revision, job: TrainingJob) -> None:
    from tasks.data_report import about_pin, report_page
    from tasks.validate import judge_scan

    about = {**about_pin(after.pin), "Compared with": before.pin.commit}
    verdict = judge_scan(after.scan, job.validation)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(report_page(verdict, after.scan, after.pin.name, before.scan, about=about))
    typer.echo(f"report: {target}", err=True)
