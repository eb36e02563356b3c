"""The content of one pin as DVC's cache holds it, fetched from the remote where the cache does not."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from data_contracts.dataset import DatasetPin
from data_contracts.errors import DatasetRepoError, Problem, raise_if_any
from tasks.datasets.dataset_remote import Remote, default_name, read_remotes
from tasks.datasets.dataset_revisions import Opened, read_out
from tasks.datasets.git_dvc import advise, masked, run_dvc, run_git
from tasks.datasets.object_transfer import md5_of
from tasks.datasets.pinned_copy import TreeFile

logger = logging.getLogger(__name__)

NAMED = 20
"""So many files are named in a message."""


@dataclass(frozen=True)
class Objects:
    """Cache and remote of one repository, for one pin."""

    repository: Path
    pin: DatasetPin
    cache: Path
    remote_name: str | None
    remote: Remote | None
    config: dict[str, Any]

    def path_of(self, md5: str) -> Path:
        """Where the cache keeps an object: <2 digits>/<the rest>."""
        return self.cache / md5[:2] / md5[2:]

    def listing(self) -> tuple[TreeFile, ...]:
        """The files of the pinned folder; every object is in the cache afterwards, what was there is not fetched again.

        Raises DatasetRepoError listing the files whose content is neither in the cache nor, undamaged, in the remote.
        """
        files = self.read_listing()
        if files is None or self._missing(files):
            failures = self._fetch()
            files = self.read_listing()
            raise_if_any(DatasetRepoError, self._told(failures, files))
        return files or ()

    def read_listing(self) -> tuple[TreeFile, ...] | None:
        """The files of the pinned folder, or None where the cache has no list of them, or a damaged one."""
        listing = self.path_of(self.pin.dvc_hash)
        if not listing.is_file():
            return None
        if md5_of(listing) != self.pin.dvc_hash.removesuffix(".dir"):
            self.drop([TreeFile("the list of files", self.pin.dvc_hash)])
            return None
        return tuple(TreeFile(entry["relpath"], entry["md5"]) for entry in json.loads(listing.read_bytes()))

    def drop(self, damaged: Iterable[TreeFile]) -> None:
        """Take objects that are not what their name says out of the cache, so that they are fetched again."""
        for file in damaged:
            logger.warning("%s in the cache of %s is damaged: it is fetched again", file.path, self.repository)
            self.path_of(file.md5).unlink(missing_ok=True)

    def _missing(self, files: tuple[TreeFile, ...]) -> list[TreeFile]:
        return [file for file in files if not self.path_of(file.md5).is_file()]

    def _fetch(self) -> list[dict[str, str]]:
        if self.remote is None:
            return []
        subject = f"fetch of dataset {self.pin.name} from {self.remote}"
        request = {"listing": self.pin.dvc_hash, "remote": self.remote_name, "config": self.config}
        answer = run_dvc(self.repository, "fetch", subject, **request)
        return list(answer["failures"])

    def _told(self, failures: list[dict[str, str]], files: tuple[TreeFile, ...] | None) -> list[Problem]:
        missing = [] if files is None else self._missing(files)
        problems = tell_failures(failures, files or (), str(self.remote), "give")
        gone = {failure["oid"] for failure in failures if failure["kind"] != "missing"}
        missing = [file for file in missing if file.md5 not in gone]
        if (files is None and not gone) or (missing and not problems):
            words = next((failure["words"] for failure in failures if failure["kind"] == "missing"), "")
            problems.append(self._incomplete(files, missing, masked(words)))
        return problems

    def _incomplete(self, files: tuple[TreeFile, ...] | None, missing: list[TreeFile], words: str) -> Problem:
        got = f"missing the list of files: {words or 'not in the cache'}"
        if files is not None:
            named = ", ".join(f"{file.path} ({file.md5})" for file in missing[:NAMED])
            got = f"missing {len(missing)} of {len(files)} files: {named}"
        subject = f"dataset {self.pin.name} at {self.pin.commit[:12]}"
        where = "no remote is configured" if self.remote is None else f"remote {self.remote}"
        action = (
            f"Run `dvc push` if it was never pushed; add the same folder again if it got lost; then retry ({where})."
        )
        if "bucket" in words.lower() and files is None:
            action = advise(words)
        return Problem(subject, "complete content in cache or remote", got, action)


def open_objects(repository: Opened, pin: DatasetPin, spare_cache: Path) -> Objects:
    """Cache and remote for a pin. A clone lives for a moment only, so its objects are kept in `spare_cache`."""
    if repository.is_clone:
        run_git(repository.folder, "checkout", "--quiet", pin.commit, "--", ".dvc")
    dvc_folder = repository.folder / ".dvc"
    if not (dvc_folder / "config").is_file():
        action = "Make it one with `dvc init`, or use `passline dataset add`."
        raise DatasetRepoError(Problem(masked(pin.ref.repository), "a DVC repository", "no .dvc/config", action))
    name = read_out(repository.folder, pin.ref, pin.commit).get("remote") or default_name(dvc_folder)
    remote = read_remotes(dvc_folder).get(name or "")
    if not repository.is_clone:
        told = remote and remote.located(dvc_folder)
        return Objects(repository.folder, pin, _cache_dir(repository.folder), name, told, {})
    config: dict[str, Any] = {"cache": {"dir": str(spare_cache)}}
    if name and remote is not None and remote.is_relative:
        remote = _located(remote, name, repository, pin)
        config["remote"] = {name: {"url": remote.url}}
    return Objects(repository.folder, pin, spare_cache / "files" / "md5", name, remote, config)


def _located(remote: Remote, name: str, repository: Opened, pin: DatasetPin) -> Remote:
    """A folder that is named from the repository, looked up from where the clone came from."""
    found = None if repository.origin is None else remote.located(repository.origin / ".dvc")
    if found is not None and Path(found.url).is_dir():
        return found
    subject = f"remote {name!r} of {masked(pin.ref.repository)}"
    got = f"the relative folder {remote.url}"
    action = (
        f"Give it a place that every machine reaches: `dvc remote modify {name} url s3://bucket/prefix` (or an absolute"
        " path), `dvc push --all-commits`, and commit .dvc/config."
    )
    raise DatasetRepoError(Problem(subject, "a place that can be reached from a clone", got, action))


def _cache_dir(repository: Path) -> Path:
    """Where DVC keeps objects; DVC itself is asked only where the default is changed, because that takes seconds."""
    for config in (repository / ".dvc" / "config", repository / ".dvc" / "config.local"):
        if config.is_file() and re.search(r"(?m)^\s*dir\s*=", config.read_text("utf-8")):
            return Path(run_dvc(repository, "cache_dir", f"cache of {repository}")["path"])
    return repository / ".dvc" / "cache" / "files" / "md5"


def tell_failures(
    failures: list[dict[str, str]], files: tuple[TreeFile, ...], remote: str, verb: Literal["give", "take"]
) -> list[Problem]:
    """What a person needs to know of objects that could not be moved: damaged ones each, a failing remote once.

    Objects that a remote should give and does not have are left to the caller, which knows how many there should be.
    """
    names = {file.md5: file.path for file in files}
    problems = [
        Problem(
            f"content of {names.get(failure['oid'], 'the list of files')} on remote {remote}",
            f"md5 {failure['oid'].removesuffix('.dir')}",
            failure["words"],
            "The object is damaged there: add the same folder again, or put a good copy in its place.",
        )
        for failure in failures
        if failure["kind"] == "wrong"
    ]
    kinds = {"give": ("failed",), "take": ("failed", "missing", "cache")}[verb]
    failed = [failure for failure in failures if failure["kind"] in kinds]
    if failed:
        named = [names.get(failure["oid"], "the list of files") for failure in failed]
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        words = masked(failed[0]["words"])
        problems.append(Problem(f"remote {remote}", f"to {verb} {', '.join(named[:3])}{more}", words, advise(words)))
    return problems
