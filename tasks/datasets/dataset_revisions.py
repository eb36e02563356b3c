"""The revisions of a dataset repository: references become pins, and pins have a history."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from pydantic import ValidationError

from data_contracts.dataset import DatasetPin, DatasetRef
from data_contracts.errors import DatasetRepoError, Problem
from tasks.datasets.git_dvc import masked, run_git

DATA_DIR = "data"
"""The folder that DVC tracks in the repositories that we make."""
_SCP_LIKE = re.compile(r"[^/\\]+@[^/\\:]+:")


@dataclass(frozen=True)
class DatasetEntry:
    """One revision of a dataset; `committed_at` in ISO 8601."""

    name: str
    pin: DatasetPin
    message: str
    committed_at: str = ""


@dataclass(frozen=True)
class Opened:
    """A repository as a folder of this machine. `origin` is the folder of this machine that was cloned."""

    folder: Path
    is_clone: bool = False
    origin: Path | None = None


@contextmanager
def opened(repository: str) -> Iterator[Opened]:
    """The repository as a folder; one at a URL, and a bare one, is cloned for the time of use.

    Raises DatasetRepoError for a path that is no repository, a URL that holds a password, and when git fails.
    """
    if not is_url(repository) and (Path(repository).absolute() / ".git").exists():
        yield Opened(Path(repository).absolute())
        return
    origin = _origin_folder(repository)
    _refuse_unusable(repository, origin)
    with tempfile.TemporaryDirectory(prefix="passline-dataset-") as clone:
        source = repository if is_url(repository) else str(origin)
        run_git(Path(clone), "clone", "--quiet", "--no-checkout", "--", source, clone)
        yield Opened(Path(clone), is_clone=True, origin=origin)


def is_url(repository: str) -> bool:
    """Whether a repository is named by a URL, or by user@host:path, instead of a path of this machine."""
    return "://" in repository or _SCP_LIKE.match(repository) is not None


def _origin_folder(repository: str) -> Path | None:
    if not is_url(repository):
        return Path(repository).absolute()
    parts = urlsplit(repository)
    return Path(parts.path) if parts.scheme == "file" else None


def _refuse_unusable(repository: str, origin: Path | None) -> None:
    if is_url(repository):
        parts = urlsplit(repository) if "://" in repository else None
        if parts and (parts.password or (parts.username and parts.scheme in ("http", "https"))):
            action = "Use SSH, ~/.netrc or GIT_ASKPASS: what is in the reference is written to every run and bundle."
            raise DatasetRepoError(
                Problem(masked(repository), "a URL without password or token", "one with it", action)
            )
    elif origin is None or not (origin / "HEAD").is_file():
        action = "Make one with `passline dataset add`, or correct the path."
        raise DatasetRepoError(Problem(str(origin), "a git + DVC repository", "no such repository", action))


def resolve(ref: DatasetRef, name: str) -> DatasetPin:
    """The exact content that a reference names now. Raises DatasetRepoError naming what is not there."""
    with opened(ref.repository) as repository:
        return read_pin(repository.folder, ref, name, commit_of(repository.folder, ref))


def commit_of(folder: Path, ref: DatasetRef) -> str:
    """The commit that a revision names; in a clone, other branches than the first are the origin's."""
    said = ""
    for revision in (ref.revision, f"refs/remotes/origin/{ref.revision}"):
        try:
            return run_git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except DatasetRepoError as error:
            said = str(error)
    subject = f"revision {ref.revision!r} of {masked(ref.repository)}"
    got = said if "fatal:" in said else "no such branch, tag or commit"
    action = "Correct the reference; `git log` in the repository shows the revisions."
    raise DatasetRepoError(Problem(subject, "to exist", got, action))


def read_pin(folder: Path, ref: DatasetRef, name: str, commit: str) -> DatasetPin:
    """The pin that the .dvc file of one commit gives."""
    subject = f"{ref.path}.dvc in commit {commit[:12]} of {masked(ref.repository)}"
    out = read_out(folder, ref, commit)
    if not str(out.get("md5")).endswith(".dir"):
        action = "Track the dataset folder itself with `dvc add`."
        raise DatasetRepoError(Problem(subject, "a folder tracked by DVC", str(out.get("md5")), action))
    if out.get("hash") != "md5":
        action = "Run `dvc cache migrate --dvc-files`, then `dvc push`, and commit."
        raise DatasetRepoError(Problem(subject, "a revision made with DVC 3", "one of an older DVC", action))
    try:
        return DatasetPin(
            name=name, ref=ref, commit=commit, dvc_hash=out["md5"], file_count=out["nfiles"], size_bytes=out["size"]
        )
    except (KeyError, ValidationError) as error:
        action = "Run `dvc commit --force` in the repository, and commit what it writes."
        raise DatasetRepoError(Problem(subject, "md5, size and nfiles of a folder", str(error), action)) from None


def read_out(folder: Path, ref: DatasetRef, commit: str) -> dict[str, Any]:
    """What the .dvc file of one commit says of the folder."""
    subject = f"{ref.path}.dvc in commit {commit[:12]} of {masked(ref.repository)}"
    action = "Correct the reference; `git log` in the repository shows the revisions."
    try:
        text = run_git(folder, "show", f"{commit}:{ref.path}.dvc")
    except DatasetRepoError:
        raise DatasetRepoError(Problem(subject, "to exist", "no such file in that commit", action)) from None
    try:
        out = yaml.safe_load(text)["outs"][0]
    except (yaml.YAMLError, KeyError, IndexError, TypeError) as error:
        raise DatasetRepoError(Problem(subject, "a .dvc file with one folder", str(error), action)) from None
    return out if isinstance(out, dict) else {}


def history(repository: Path, name: str, path: str = DATA_DIR) -> tuple[DatasetEntry, ...]:
    """The revisions of a repository of this machine, newest first; commits that left the data alone are none."""
    return _history(repository, DatasetRef(repository=str(repository), path=path), name, "HEAD")


def previous_revision(pin: DatasetPin) -> DatasetPin | None:
    """The newest earlier revision with other content, None for the first."""
    with opened(pin.ref.repository) as repository:
        entries = _history(repository.folder, pin.ref, pin.name, pin.commit)
    return next((entry.pin for entry in entries if entry.pin.dvc_hash != pin.dvc_hash), None)


def _history(folder: Path, ref: DatasetRef, name: str, start: str) -> tuple[DatasetEntry, ...]:
    log = run_git(folder, "log", "--first-parent", "--format=%H%x09%cI%x09%s", start, "--", f"{ref.path}.dvc")
    entries = []
    for line in log.splitlines():
        commit, committed_at, message = line.split("\t", 2)
        try:
            pin = read_pin(folder, ref.model_copy(update={"revision": commit}), name, commit)
        except DatasetRepoError:
            continue  # Removed there, or of an older DVC: nothing that can be compared with.
        entries.append(DatasetEntry(name, pin, message, committed_at))
    return tuple(entries)
