"""A dataset folder from its files to its report: scan, then rules. No Prefect: the command line uses it as it is."""

from __future__ import annotations

from pathlib import Path

from serving.images import ImageLimits
from tasks.scan import DatasetScan, scan_dataset
from tasks.validation.findings import ValidationReport
from tasks.validation.judging import judge_scan
from tasks.validation.validate_config import ValidateConfig


def validate_folder(
    folder: Path, config: ValidateConfig, *, cache: Path | None = None, full: bool = False, progress: bool = False
) -> ValidationReport:
    """Scan `folder` and hold it against the rules. Raises DatasetError when data.yaml does not describe the folder.

    `cache`, `full` and `progress` are those of `scan_dataset`.
    """
    return judge_scan(scan_folder(folder, config, cache, full=full, progress=progress), config)


def scan_folder(
    folder: Path, config: ValidateConfig, cache: Path | None, *, full: bool = False, progress: bool = False
) -> DatasetScan:
    """The scan that these rules are applied to."""
    limits = ImageLimits(config.max_bytes, config.max_pixels)
    return scan_dataset(folder, limits, config.group_pattern, cache=cache, full=full, progress=progress)
