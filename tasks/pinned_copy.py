"""The verified, read-only copy of a pinned dataset: made beside its place, then renamed; complete or not there.

<pinned home>/<dvc md5>/       data.yaml, images/, labels/
<pinned home>/<dvc md5>.json   the pin; written last: the mark that the copy is complete
<pinned home>/<dvc md5>.lock   held while the copy is made or checked
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from data_contracts.dataset import DatasetPin
from data_contracts.errors import DatasetRepoError, Problem, raise_if_any

_CHUNK_BYTES = 1 << 20


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
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class PinnedCopy:
    """The copy of one pin below `home`. The caller holds `lock_file`."""

    def __init__(self, home: Path, pin: DatasetPin) -> None:
        self.pin = pin
        self.home = home.absolute()
        self.key = pin.dvc_hash.removesuffix(".dir")
        self.folder = self.home / self.key
        self.lock_file = self.home / f"{self.key}.lock"
        self._mark = self.home / f"{self.key}.json"

    def is_complete(self) -> bool:
        """Whether a finished copy is there with the pin's file count and size."""
        if not (self._mark.is_file() and self.folder.is_dir()):
            return False
        sizes = [path.lstat().st_size for path in self.folder.rglob("*") if not path.is_dir()]
        return (len(sizes), sum(sizes)) == (self.pin.file_count, self.pin.size_bytes)

    def write(self, files: tuple[TreeFile, ...], object_path: Callable[[str], Path]) -> None:
        """Copy every object to its name, verifying content; nothing is left behind when one is wrong."""
        self._check_listing(files)
        draft = self.home / f".{self.key}.draft"
        for leftover in (draft, self.folder):
            remove_tree(leftover)
        self._mark.unlink(missing_ok=True)
        try:
            problems = [problem for file in files if (problem := _copy_verified(file, object_path(file.md5), draft))]
            raise_if_any(DatasetRepoError, problems)
            make_read_only(draft)
            draft.rename(self.folder)
        except BaseException:  # Also on Ctrl-C: a half-filled folder must not stay.
            remove_tree(draft)
            raise
        _write_synced(self._mark, self.pin.to_json())

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


def _is_inside(path: str) -> bool:
    pure = PurePosixPath(path)
    return not pure.is_absolute() and ".." not in pure.parts


def _copy_verified(file: TreeFile, source: Path, draft: Path) -> Problem | None:
    target = draft / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.md5(usedforsecurity=False)  # DVC's content hash: finds damage, not forgery.
    with source.open("rb") as reader, target.open("wb") as writer:
        while chunk := reader.read(_CHUNK_BYTES):
            digest.update(chunk)
            writer.write(chunk)
    if digest.hexdigest() == file.md5:
        return None
    action = f"Remove {source} and retry, so that it is fetched again."
    return Problem(f"content of {file.path}", f"md5 {file.md5}", digest.hexdigest(), action)


def list_tree(folder: Path) -> tuple[TreeFile, ...]:
    """The files below `folder` with their content's MD5."""
    return tuple(
        TreeFile(path.relative_to(folder).as_posix(), hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest())
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
