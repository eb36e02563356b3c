"""Step `pin`: a dataset reference becomes exact content in a verified, read-only copy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prefect import get_run_logger, task

from data_contracts.dataset import DatasetPin, DatasetRef
from tasks.dataset_repo import fetch, resolve


@dataclass(frozen=True)
class PinnedDataset:
    """What training, validation and evaluation read; nothing may write there."""

    pin: DatasetPin
    folder: Path


def pin(ref: DatasetRef, name: str, pinned_home: Path) -> PinnedDataset:
    """Resolve `ref` and fetch what it names. Raises DatasetRepoError; nothing half-filled is left."""
    resolved = resolve(ref, name)
    return PinnedDataset(resolved, fetch(resolved, pinned_home))


@task(retries=2, retry_delay_seconds=[2, 10])
def pin_dataset(ref: DatasetRef, name: str, pinned_home: Path) -> PinnedDataset:
    """Pin dataset `name`. Retried: the remote may be on a network."""
    pinned = pin(ref, name, pinned_home)
    get_run_logger().info(
        "Dataset %s at %s, %s: %d files in %s",
        name, pinned.pin.commit[:12], pinned.pin.dvc_hash, pinned.pin.file_count, pinned.folder,
    )  # fmt: skip
    return pinned
