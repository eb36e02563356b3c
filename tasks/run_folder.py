"""The name and the working folder of a flow run, and what a later attempt of the same run finds in it.

<runs>/<flow run id>/
  alive.lock                 held while a process works on the run; a killed one lets go of it
  done/<step>.json           what a finished step returned: a later attempt takes it from here
  train/                     the training, with the record that brings it back
  ...                        what the other steps write; a later attempt makes it again
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar
from uuid import uuid4

from prefect.runtime import flow_run
from pydantic import TypeAdapter, ValidationError

from data_contracts.errors import JobError, Problem
from serving.atomic import write_atomically

T = TypeVar("T")

LOCK, DONE, TRAINING = "alive.lock", "done", "train"
KEPT = frozenset({LOCK, DONE, TRAINING, "data", "dataset"})
"""What a later attempt goes on with; everything else in the folder may be half made."""


def run_name() -> str:
    """The name that Prefect gave the flow run; "by-hand" outside one."""
    return flow_run.name or "by-hand"


def run_folder(runs: Path) -> Path:
    """`<runs>/<flow run id>`, made when missing; a name of its own outside a flow run."""
    folder = runs / str(flow_run.id or uuid4())
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def first_attempt() -> bool:
    """Whether the flow run starts for the first time."""
    return (flow_run.run_count or 0) <= 1


def is_alive(folder: Path) -> bool:
    """Whether a process of this machine works on the run."""
    if not (folder / LOCK).is_file():
        return False
    with (folder / LOCK).open("rb") as handle:
        return not _locks(handle)


@contextmanager
def attempt(folder: Path) -> Iterator[None]:
    """Work on the run: alone, and without what an earlier attempt left half made.

    Raises JobError when another process does it.
    """
    (folder / LOCK).touch()
    with (folder / LOCK).open("rb") as handle:
        if not _locks(handle):
            action = "Wait for its end, or end that process and resume."
            raise JobError(Problem(f"run folder {folder}", "no other process", "one at work", action))
        clear_unfinished(folder)
        yield


def _locks(handle: BinaryIO) -> bool:
    """Take the lock until `handle` is closed; the system lets go of it for a process that was killed."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def clear_unfinished(folder: Path) -> None:
    """Remove what no later attempt goes on with."""
    for entry in folder.iterdir():
        if entry.name not in KEPT:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def once(
    folder: Path, step: str, kind: type[T], make: Callable[[], T], still_good: Callable[[T], bool] = lambda _: True
) -> T:
    """What `step` returned in an earlier attempt of this run, else what `make` returns, kept for a later one.

    Made again when what an earlier attempt tells of is not `still_good`.
    """
    known = recall(folder, step, kind)
    if known is not None and still_good(known):
        return known
    made = make()
    keep(folder, step, kind, made)
    return made


def recall(folder: Path, step: str, kind: type[T]) -> T | None:
    """What an earlier attempt kept of `step`; None when there is nothing or it cannot be read."""
    try:
        return TypeAdapter(kind).validate_json((folder / DONE / f"{step}.json").read_bytes())
    except (OSError, ValidationError):
        return None


def keep(folder: Path, step: str, kind: type[T], value: T) -> None:
    """Keep what `step` returned for a later attempt."""
    (folder / DONE).mkdir(exist_ok=True)
    write_atomically(folder / DONE / f"{step}.json", TypeAdapter(kind).dump_json(value, indent=2))
