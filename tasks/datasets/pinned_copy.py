"""The verified, read-only copy of a pinned dataset: made beside its place, then renamed; complete or not there.

<pinned home>/<dvc md5>/             data.yaml, images/, labels/
<pinned home>/<dvc md5>.files.json   DVC's list of the files with their MD5, itself named by its MD5
<pinned home>/<dvc md5>.json         the pin and a stamp of the files; written last: the mark that the copy is complete
<pinned home>/<dvc md5>.lock         held while the copy is made or checked
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from data_contracts.base import Contract, Sha256
from data_contracts.dataset import DatasetPin
from data_contracts.errors import DatasetRepoError, Problem, raise_if_any
from tasks.datasets.object_transfer import md5_of

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20


class PinnedMark(Contract):
    """Written when a copy is complete."""

    pin: DatasetPin
    stamp: Sha256


@dataclass(frozen=True)
class TreeFile:
    """One file of the pinned folder: path relative to it, and the MD5 of its content."""

    path: str
    md5: str


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold a lock on `path`; other processes and threads wait. The lock ends with the process, whatever happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("Waiting for another process that holds %s", path)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def disk_errors_told(folder: Path) -> Iterator[None]:
    """What the disk refuses below `folder` becomes a DatasetRepoError."""
    try:
        yield
    except OSError as error:
        where, expected = str(error.filename or folder), "a file or folder that can be used, on a disk with room"
        action = "Free some space or mend owner and mode, then retry; nothing half-made is used."
        raise DatasetRepoError(Problem(where, expected, str(error.strerror or error), action)) from error


class PinnedCopy:
    """The copy of one pin below `home`. The caller holds `lock_file`."""

    def __init__(self, home: Path, pin: DatasetPin) -> None:
        self.pin = pin
        self.home = home.absolute()
        self.key = pin.dvc_hash.removesuffix(".dir")
        self.folder = self.home / self.key
        self.lock_file = self.home / f"{self.key}.lock"
        self._mark = self.home / f"{self.key}.json"
        self._files = self.home / f"{self.key}.files.json"

    def is_complete(self) -> bool:
        """Whether a finished copy is there that nobody has altered.

        Names, sizes and modification times are compared; only where they differ, the content is read.
        """
        try:
            mark = PinnedMark.model_validate_json(self._mark.read_bytes())
        except (FileNotFoundError, ValidationError):
            return False
        stamp = self._stamp()
        if stamp != mark.stamp:
            if self.altered():
                return False
            self._write_mark(stamp)
        return True

    def altered(self) -> tuple[str, ...]:
        """The files that are not as pinned: changed, gone, or there although they are not listed. Reads everything.

        A copy with any is not complete from then on.
        """
        try:
            listed = self._listed()
        except (FileNotFoundError, ValueError):
            listed = {}
        found = {path.relative_to(self.folder).as_posix(): path for path in self._paths()}
        wrong = {name for name, path in found.items() if path.is_symlink() or listed.get(name) != md5_of(path)}
        wrong |= listed.keys() - found.keys()
        if wrong or not listed:
            self._mark.unlink(missing_ok=True)
        return tuple(sorted(wrong))

    def write(self, files: tuple[TreeFile, ...], object_path: Callable[[str], Path]) -> tuple[TreeFile, ...]:
        """Copy every object to its name, verifying content.

        Gives those whose object is damaged; the copy is made when there are none, and otherwise nothing is left behind.
        """
        self._check_listing(files)
        self._require_room()
        draft = self.home / f".{self.key}.draft"
        remove_tree(draft)
        try:
            damaged = tuple(file for file in files if not _copy_verified(file, object_path(file.md5), draft))
            if damaged:
                return damaged
            make_read_only(draft)
            self._mark.unlink(missing_ok=True)
            remove_tree(self.folder)
            draft.rename(self.folder)
        finally:  # Also on Ctrl-C: a half-filled folder must not stay.
            remove_tree(draft)
        _write_synced(self._files, object_path(self.pin.dvc_hash).read_text("utf-8"))
        self._write_mark(self._stamp())
        return ()

    def _check_listing(self, files: tuple[TreeFile, ...]) -> None:
        subject = f"list of files {self.pin.dvc_hash}"
        action = "The remote or the cache is damaged: push the revision again from a good copy."
        problems = [
            Problem(subject, "paths inside the dataset", file.path, action)
            for file in files
            if not _is_inside(file.path)
        ]
        if len(files) != self.pin.file_count or len({file.path for file in files}) != len(files):
            problems.append(Problem(subject, f"{self.pin.file_count} files", f"{len(files)}", action))
        raise_if_any(DatasetRepoError, problems)

    def _require_room(self) -> None:
        free = shutil.disk_usage(self.home).free
        if free < self.pin.size_bytes:
            got, wanted = f"{free / 2**20:.0f} MiB", f"{self.pin.size_bytes / 2**20:.0f} MiB free"
            action = "Free some space: copies of revisions that nobody trains on any more may be removed."
            raise DatasetRepoError(Problem(f"disk of {self.home}", wanted, got, action))

    def _paths(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_symlink() or not path.is_dir())

    def _stamp(self) -> str:
        digest = hashlib.sha256()
        for path in self._paths():
            facts = path.lstat()
            digest.update(f"{path.relative_to(self.folder)}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def _listed(self) -> dict[str, str]:
        text = self._files.read_bytes()
        if hashlib.md5(text, usedforsecurity=False).hexdigest() != self.key:
            raise ValueError("not the list of the pin")
        return {entry["relpath"]: entry["md5"] for entry in json.loads(text)}

    def _write_mark(self, stamp: str) -> None:
        _write_synced(self._mark, PinnedMark(pin=self.pin, stamp=stamp).to_json())


def _is_inside(path: str) -> bool:
    pure = PurePosixPath(path)
    return not pure.is_absolute() and ".." not in pure.parts


def _copy_verified(file: TreeFile, source: Path, draft: Path) -> bool:
    target = draft / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.md5(usedforsecurity=False)  # DVC's content hash: finds damage, not forgery.
    with source.open("rb") as reader, target.open("wb") as writer:
        while chunk := reader.read(_CHUNK_BYTES):
            digest.update(chunk)
            writer.write(chunk)
    return digest.hexdigest() == file.md5


def list_tree(folder: Path) -> tuple[TreeFile, ...]:
    """The files below `folder` with their content's MD5."""
    return tuple(
        TreeFile(path.relative_to(folder).as_posix(), md5_of(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    )


def make_read_only(folder: Path) -> None:
    """Files and folders below and including `folder` become read-only."""
    for current, _, names in os.walk(folder, topdown=False):
        for name in names:
            Path(current, name).chmod(0o444)
        Path(current).chmod(0o555)


def remove_tree(folder: Path) -> None:
    """Remove a tree that may be read-only, or may not exist."""
    if not folder.is_dir():
        return
    for current, _, _ in os.walk(folder):
        Path(current).chmod(0o755)
    shutil.rmtree(folder)


def _write_synced(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}")
    with draft.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    draft.replace(path)
