"""The data report of a revision: data_report.html for people, validation.json for programs, a text for terminals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from data_contracts.dataset import DatasetPin
from serving.atomic import write_atomically
from tasks.reporting.drift import compare_scans
from tasks.reporting.report_page import render_page
from tasks.reporting.report_text import render_table
from tasks.scan import DatasetScan
from tasks.validation.findings import ValidationReport

__all__ = ["REPORT_JSON", "REPORT_PAGE", "about_pin", "render_table", "report_page", "write_report"]

REPORT_PAGE = "data_report.html"
REPORT_JSON = "validation.json"


def write_report(
    report: ValidationReport,
    scan: DatasetScan,
    folder: Path,
    title: str,
    previous: DatasetScan | None = None,
    *,
    about: Mapping[str, str] | None = None,
) -> Path:
    """Write data_report.html and validation.json to `folder`; the page's path.

    `previous` is the scan of the revision before, for what changed; `about` says where the data come from. Only the
    pictures that the page shows are read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REPORT_JSON).write_text(report.to_json(), "utf-8")
    page = report_page(report, scan, title, previous, about=about)
    write_atomically(folder / REPORT_PAGE, page, durable=False)
    return folder / REPORT_PAGE


def report_page(
    report: ValidationReport,
    scan: DatasetScan,
    title: str,
    previous: DatasetScan | None = None,
    *,
    about: Mapping[str, str] | None = None,
) -> bytes:
    """The page alone, in UTF-8."""
    drift = compare_scans(previous, scan) if previous else None
    return render_page(report, scan, title, drift=drift, near=scan.near, about=about).encode("utf-8", "replace")


def about_pin(pin: DatasetPin) -> dict[str, str]:
    """What the report says on the origin of a pinned dataset."""
    return {
        "Dataset": pin.name,
        "Repository": pin.ref.repository,
        "Revision": pin.commit if pin.ref.revision in {pin.commit, "HEAD"} else f"{pin.commit} ({pin.ref.revision})",
        "Content": f"{pin.dvc_hash}, {pin.file_count:,} files, {pin.size_bytes / 2**20:,.1f} MiB",
    }
