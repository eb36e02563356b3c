"""Folders that appear whole or not at all."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from data_contracts.errors import Problem, ReleaseError
from serving.atomic import sync_folder, write_atomically

_COPY_TAKES_AT_MOST_S = 3600.0


@contextmanager
def placed(target: Path) -> Iterator[Path]:
    """A folder to fill; it becomes `target` when the block ends well, and nothing stays of it otherwise.

    What lies at `target` makes room. Raises ReleaseError when the disk does not take it.
    """
    incoming = target.with_name(f".incoming-{uuid.uuid4().hex}")
    try:
        yield incoming
        _put_in_place(incoming, target)
    except OSError as error:
        raise ReleaseError(
            Problem(f"copy of {target.name[:12]}", "room in the release store", str(error), "Free the disk.")
        ) from error
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def copy_files(source: Path, names: Iterable[str], target: Path) -> None:
    """Copy these files, by their names relative to `source`; nothing else comes along."""
    for name in names:
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(copy, (source / name).read_bytes())


def _put_in_place(incoming: Path, target: Path) -> None:
    parent = target.parent
    if target.exists():
        target.rename(parent / f".broken-{uuid.uuid4().hex}")
    incoming.rename(target)
    sync_folder(parent)
    for broken in parent.glob(".broken-*"):
        shutil.rmtree(broken, ignore_errors=True)
    for left_over in parent.glob(".incoming-*"):
        if time.time() - left_over.stat().st_mtime > _COPY_TAKES_AT_MOST_S:
            shutil.rmtree(left_over, ignore_errors=True)
