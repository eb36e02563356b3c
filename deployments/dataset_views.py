"""What `passline dataset` shows of a revision and of the change between two: values in, text or JSON fields out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data_contracts.dataset import DatasetPin, DatasetRef
from data_contracts.errors import DatasetRepoError, Problem
from tasks.dataset_repo import DatasetEntry, fetch, history, previous_revision, resolve
from tasks.reporting.report_text import plural, text_table
from tasks.scan import DatasetScan
from tasks.settings import SiteSettings
from tasks.splitting.split_record import RECORD_NAME, read_record
from tasks.validation.scan_facts import count_boxes, count_pictures

if TYPE_CHECKING:
    from tasks.validate import ValidateConfig

SHOWN_REVISIONS = 20


@dataclass(frozen=True)
class Revision:
    """One revision: its pin and the tables of its content."""

    pin: DatasetPin
    scan: DatasetScan
    recorded: Mapping[str, int]
    """Pictures per split in the recorded split; none where nothing is recorded."""


def locate(settings: SiteSettings, name: str, revision: str) -> DatasetPin:
    """The pin of a revision of dataset `name`, which may also be the path or URL of a repository.

    Raises DatasetRepoError naming the datasets that there are when it is none of them.
    """
    known = sorted(path.parents[1].name for path in settings.datasets.glob("[!.]*/.dvc/config"))
    ref = settings.locate(DatasetRef(repository=name, revision=revision))
    if ref.repository != name and name not in known:
        got = f"no such dataset; there are {', '.join(known)}" if known else "no dataset on this machine yet"
        action = "Make it with `passline dataset add`, or correct the name."
        raise DatasetRepoError(Problem(f"dataset {name!r}", f"a repository in {settings.datasets}", got, action))
    return resolve(ref, dataset_name(name))


def dataset_name(repository: str) -> str:
    """The name of a dataset from its repository's name, path or URL.

    >>> dataset_name("plates"), dataset_name("ssh://host/data/Plates.git")
    ('plates', 'plates')
    """
    last = repository.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1].removesuffix(".git").lower()
    safe = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in last)
    return safe.lstrip("._-")[:63] or "dataset"


def compared_pins(settings: SiteSettings, name: str, old: str | None, new: str) -> tuple[DatasetPin, DatasetPin]:
    """The pins to compare; without `old`, the revision before `new`. Raises DatasetRepoError where there is none."""
    after = locate(settings, name, new)
    before = locate(settings, name, old) if old else previous_revision(after)
    if before is None:
        action = "Add a newer one with `passline dataset add`, or name two revisions."
        raise DatasetRepoError(Problem(f"dataset {name!r}", "an earlier revision", "the first one", action))
    return before, after


def open_revision(settings: SiteSettings, pin: DatasetPin, config: ValidateConfig) -> Revision:
    """Fetch what a pin names and read it. A revision that was read before is not read again."""
    from tasks.validate import scan_folder

    folder = fetch(pin, settings.pinned)
    scan = scan_folder(folder, config, settings.home / "scans", progress=True)
    return Revision(pin, scan, _recorded_splits(folder))


def _recorded_splits(folder: Path) -> Counter[str]:
    return Counter(row.split.value for row in read_record(folder / RECORD_NAME).rows if row.picture)


def revisions_of(pin: DatasetPin) -> tuple[DatasetEntry, ...]:
    """The revisions of the repository, newest first; none are listed for one at a URL."""
    repository = Path(pin.ref.repository)
    return history(repository, pin.name, pin.ref.path) if (repository / ".git").exists() else ()


def entry_fields(entry: DatasetEntry) -> dict[str, Any]:
    """One revision in a list, as fields for JSON."""
    return {
        "name": entry.name, "revision": entry.pin.commit, "committed_at": entry.committed_at,
        "message": entry.message, "dvc_hash": entry.pin.dvc_hash, "files": entry.pin.file_count,
        "size_bytes": entry.pin.size_bytes,
    }  # fmt: skip


def list_text(entries: Sequence[DatasetEntry]) -> str:
    """The datasets of a machine as text."""
    if not entries:
        return "No dataset on this machine yet. Make one with `passline dataset add FOLDER --name NAME`."
    return "\n".join(
        text_table(["name", "revision", "made at", "files", "message"], [[e.name, *_entry_row(e)] for e in entries])
    )


def show_fields(revision: Revision, revisions: Sequence[DatasetEntry]) -> dict[str, Any]:
    """A revision as fields for JSON: pin, history, counts, the recorded split."""
    return {
        "pin": revision.pin.model_dump(mode="json"),
        "counts": count_pictures(revision.scan),
        "class_boxes": count_boxes(revision.scan),
        "recorded_split": dict(revision.recorded),
        "history": [entry_fields(entry) for entry in revisions],
    }


def show_text(revision: Revision, revisions: Sequence[DatasetEntry]) -> str:
    """A revision as text: where it comes from, what is in it, which revisions there are."""
    pin, boxes = revision.pin, count_boxes(revision.scan)
    counts = count_pictures(revision.scan)
    count_names = next(iter(counts.values()), {})
    lines = [
        f"{pin.name}: revision {pin.commit}",
        f"  repository  {pin.ref.repository}",
        f"  content     {pin.dvc_hash}, {plural(pin.file_count, 'file')}, {pin.size_bytes / 2**20:,.1f} MiB",
        f"  split       {_recorded_text(revision.recorded)}",
        "",
        *text_table(["split", *count_names], [_row(item) for item in counts.items()]),
        "",
        *text_table(["id", "class", *counts], [[str(n), *_row(item)] for n, item in enumerate(boxes.items())]),
        "",
        *text_table(["revision", "made at", "files", "message"], [_entry_row(e) for e in revisions[:SHOWN_REVISIONS]]),
    ]
    if len(revisions) > SHOWN_REVISIONS:
        lines.append(f".. and {len(revisions) - SHOWN_REVISIONS} more; --json lists all")
    return "\n".join(lines) + "\n"


def _row(item: tuple[str, dict[str, int]]) -> list[str]:
    name, counted = item
    return [name, *map(str, counted.values())]


def _entry_row(entry: DatasetEntry) -> list[str]:
    return [entry.pin.commit[:12], entry.committed_at[:16].replace("T", " "), str(entry.pin.file_count), entry.message]


def _recorded_text(recorded: Mapping[str, int]) -> str:
    if not recorded:
        return "not recorded: the first training draws what the dataset does not give"
    return "recorded: " + ", ".join(f"{name} {count:,}" for name, count in recorded.items())
