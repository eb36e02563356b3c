"""Whether a later attempt of a run can go on with what an earlier one left."""

from __future__ import annotations

from pathlib import Path

from data_contracts.dataset import DatasetPin, DatasetRef, Split
from tasks.data_report import REPORT_PAGE
from tasks.validation.findings import ValidationReport
from tasks.working_copy import WorkingCopy


def same_revision(ref: DatasetRef, known: DatasetPin | None) -> DatasetRef:
    """`ref`, or the commit that an earlier attempt pinned: HEAD may have moved on since, and a run has one dataset."""
    return ref if known is None else ref.model_copy(update={"revision": known.commit})


def report_is_there(report: ValidationReport, folder: Path) -> bool:
    """Whether the dataset was accepted and the report that was written of it is still there."""
    return report.accepted and (folder / REPORT_PAGE).is_file()


def copy_is_whole(copy: WorkingCopy) -> bool:
    """Whether data.yaml and as many pictures as were written are still there."""
    return copy.data_yaml.is_file() and all(
        _file_count(copy, split) == counts.pictures for split, counts in copy.counts.items()
    )


def _file_count(copy: WorkingCopy, split: Split) -> int:
    return sum(path.is_file() for path in (copy.folder / "images" / split.value).rglob("*"))
