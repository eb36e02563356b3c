"""`passline validate`: hold a dataset against the data contracts."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from data_contracts.errors import DatasetError, InvalidInput, PasslineError, Problem
from deployments.cli_import import class_names
from deployments.cli_training import enter_training_side

if TYPE_CHECKING:
    from tasks.validation.findings import ValidationReport
    from tasks.validation.validate_config import ValidateConfig

REJECTED = 1
AUTO, YOLO = "auto", "yolo"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(validate)


def validate(
    path: Annotated[Path, typer.Argument(help="Folder of the dataset; it is only read.")],
    source_format: Annotated[
        str,
        typer.Option("--format", help="auto, yolo, coco, voc, deeppcb, masks, labelme, cvat or labelstudio."),
    ] = AUTO,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object: accepted, findings, counts and more.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Read files again whose size and time are unchanged.")] = False,
    classes: Annotated[
        str | None,
        typer.Option(help="Class names in id order, a,b,c, for a folder of another tool that does not have them."),
    ] = None,
) -> None:
    """Hold a dataset against the data contracts. Exit 0 accepted, 1 rejected, 2 could not be looked at.

    With --json, standard output is exactly one object in all three cases; `accepted` is null where nothing was judged.
    """
    try:
        report = _report(path, source_format, classes, full=full)
    except PasslineError as error:
        if as_json:
            words = [str(problem) for problem in error.problems]
            typer.echo(json.dumps({"accepted": None, "findings": [], "counts": {}, "error": words}, indent=2))
        raise
    typer.echo(report.model_dump_json(indent=2) if as_json else _table(report), nl=as_json)
    if not report.accepted:
        raise typer.Exit(REJECTED)


def _table(report: ValidationReport) -> str:
    from tasks.reporting.report_text import render_table

    return render_table(report, colour=sys.stdout.isatty())


def _report(path: Path, source_format: str, classes: str | None, *, full: bool) -> ValidationReport:
    if not path.is_dir():
        got = "a file" if path.exists() else "nothing of that name"
        raise InvalidInput(Problem(str(path), "a dataset folder", got, "Name an existing folder."))
    stack = enter_training_side()
    from tasks.settings import load_site_settings

    config = _config(stack.project / "params.yaml")
    cache = load_site_settings().home / "scans"
    try:
        return _validated(path.absolute(), source_format, config, cache, classes, full=full)
    except OSError as error:
        where = str(error.filename or path)
        action = "Check the file's rights and the disk, then retry."
        raise InvalidInput(Problem(where, "a file that can be read", str(error.strerror or error), action)) from None


def _config(params: Path) -> ValidateConfig:
    """The section `job.validation`. What is wrong with the file is told by who knows all of it, and imports much."""
    from tasks.validation.validate_config import ValidateConfig

    try:
        return ValidateConfig.model_validate(yaml.safe_load(params.read_text("utf-8"))["job"]["validation"])
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        from deployments.params import load_params

        return load_params(params).job.validation


def _validated(
    folder: Path, source_format: str, config: ValidateConfig, cache: Path, classes: str | None, *, full: bool
) -> ValidationReport:
    """The report on a folder: as it lies where its YAML file describes it, imported otherwise.

    A DatasetError is what was found when the folder was looked at: it becomes a rejection.
    """
    from tasks.datasets.dataset_layout import YAML_NAMES

    _require_format(source_format)
    fault: DatasetError | None = None
    if source_format in (AUTO, YOLO) and any((folder / name).is_file() for name in YAML_NAMES):
        try:
            return _judged(folder, config, cache, full=full)
        except DatasetError as error:
            fault = error
    if source_format == AUTO:
        # Exports of other formats carry such a file too, often one that describes another folder.
        source_format, fault = _other_format(folder, fault)
    if fault:
        return _rejected(fault, folder)
    try:
        return _imported(folder, source_format, config, None if classes is None else class_names(classes))
    except DatasetError as error:
        return _rejected(error, folder)


def _other_format(folder: Path, fault: DatasetError | None) -> tuple[str, DatasetError | None]:
    """The format of a folder whose YAML file is absent or at `fault`, and the fault unless another format speaks."""
    try:
        found = _detected(folder)
    except InvalidInput as error:
        if fault is None and not isinstance(error, DatasetError):
            raise
        return YOLO, DatasetError(*(fault.problems if fault else ()), *error.problems)
    return found, fault if found == YOLO else None


def _require_format(source_format: str) -> None:
    from tasks.importers import FORMATS

    if source_format not in (AUTO, *FORMATS):
        names = ", ".join((AUTO, *FORMATS))
        raise InvalidInput(Problem("--format", f"one of {names}", source_format, "Correct the name."))


def _detected(folder: Path) -> str:
    """The format of the annotations. Raises InvalidInput for none or several, DatasetError for broken ones."""
    from tasks.importers import detect_format

    if not any(folder.iterdir()):
        action = "Name the folder that holds the pictures and their annotations."
        raise InvalidInput(Problem(str(folder), "a dataset", "an empty folder", action))
    return detect_format(folder)


def _judged(folder: Path, config: ValidateConfig, cache: Path | None, *, full: bool = False) -> ValidationReport:
    from tasks.validation.checking import validate_folder

    return validate_folder(folder, config, cache=cache, full=full, progress=True)


def _rejected(error: DatasetError, folder: Path) -> ValidationReport:
    from tasks.validation.judging import rejected_by_layout

    return rejected_by_layout(error, folder)


def _imported(
    source: Path, source_format: str, config: ValidateConfig, names: tuple[str, ...] | None
) -> ValidationReport:
    """The report on a folder of another format, with the paths of that format."""
    from tasks.importers import import_dataset
    from tasks.validation.native_findings import told_as_native

    with tempfile.TemporaryDirectory(prefix="passline-validate-") as draft:
        imported = import_dataset(source, source_format, Path(draft, "dataset"), names)
        try:
            report = _judged(imported.folder, config, None)
        except DatasetError as error:
            report = _rejected(error, imported.folder)
        return told_as_native(report, imported)
