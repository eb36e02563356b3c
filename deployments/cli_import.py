"""Commands that bring annotations of other tools into the dataset layout: `passline dataset import`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from data_contracts.errors import InvalidInput, Problem
from deployments.cli_training import enter_training_side

if TYPE_CHECKING:
    from tasks.importers import Imported

NOTHING_WRITTEN = 1


def register(dataset_app: typer.Typer) -> None:
    """Add the commands of this module."""
    dataset_app.command("import")(import_annotations)


def import_annotations(
    source: Annotated[Path, typer.Argument(help="Folder with pictures and annotations; it is only read.")],
    target: Annotated[Path, typer.Argument(help="New folder for the dataset.")],
    source_format: Annotated[
        str,
        typer.Option("--format", help="yolo, coco, voc, deeppcb, masks, labelme, cvat or labelstudio; auto finds out."),
    ] = "auto",
    classes: Annotated[
        str | None,
        typer.Option(help="The project's classes in id order, a,b,c; or a dataset folder or data.yaml that has them."),
    ] = None,
    renamed: Annotated[
        list[str] | None,
        typer.Option("--map", help="old=new for a class that has another name here; old= leaves its boxes out."),
    ] = None,
    by_name: Annotated[
        bool, typer.Option("--by-name", help="Another order, or fewer classes than the project's, is meant so.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Bring annotations of another tool into the dataset layout, all of it or nothing.

    Exit 0: imported; 1: something could not be read and nothing was written; 2: could not run.
    """
    enter_training_side()
    from tasks.importers import detect_format, import_dataset

    found = detect_format(source) if source_format == "auto" else source_format
    names = None if classes is None else class_names(classes)
    imported = import_dataset(
        source, found, target, names, renames=_renames(renamed or []), by_name=by_name, strict=True
    )
    typer.echo(json.dumps(_fields(imported, found), indent=2) if as_json else _text(imported, found))
    if not imported.written:
        raise typer.Exit(NOTHING_WRITTEN)


def class_names(given: str) -> tuple[str, ...]:
    """The names in a comma-separated list, or those of a dataset on disk."""
    path = Path(given)
    if path.is_file() or path.is_dir():
        from tasks.importers import read_class_names

        return read_class_names(path)
    return tuple(name.strip() for name in given.split(","))


def _renames(given: list[str]) -> dict[str, str]:
    pairs = [entry.partition("=") for entry in given]
    wrong = [entry for entry, (old, equals, _) in zip(given, pairs, strict=True) if not old or not equals]
    if wrong:
        raise InvalidInput(Problem("--map", "old=new", ", ".join(wrong), "Write one name, an equals sign, the other."))
    return {old: new.strip() for old, _, new in pairs}


def _fields(imported: Imported, source_format: str) -> dict[str, Any]:
    return {
        "imported": imported.written,
        "folder": str(imported.folder),
        "format": source_format,
        "classes": list(imported.class_names),
        "counts": dict(imported.counts),
        "findings": [finding.model_dump(mode="json") for finding in imported.findings],
    }


def _text(imported: Imported, source_format: str) -> str:
    counts = imported.counts
    splits = ", ".join(f"{split} {counts[split]}" for split in ("train", "val", "test") if counts.get(split))
    kinds = ", ".join(
        f"{counts[name]} {words}"
        for name, words in (
            ("labelled", "with boxes"),
            ("backgrounds", "declared to show nothing"),
            ("unlabelled", "without annotation"),
        )
    )
    verdict = "imported to" if imported.written else "errors: nothing was written to"
    lines = [
        *(f"{finding.severity:8}{finding}" for finding in imported.findings),
        f"{verdict} {imported.folder} from {source_format}",
        f"{counts['pictures']} pictures ({splits}): {kinds}",
        f"{counts['boxes']} boxes of {', '.join(imported.class_names)}",
    ]
    return "\n".join(lines)
