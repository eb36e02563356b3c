"""The adapter to git and DVC: dataset repositories, their revisions and their content.

    <datasets home>/<name>/            git + DVC repository; `data/` is tracked by DVC
    <datasets home>/.remotes/<name>/   its default remote

git and DVC run in processes of their own with a clean configuration: whatever a user has set up for git, and whatever
repository the datasets home happens to lie in, does not matter, and no identity needs to be configured.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from data_contracts.dataset import DatasetPin, DatasetRef
from data_contracts.errors import DatasetRepoError, Problem
from tasks.dataset_copy import copy_dataset
from tasks.dataset_layout import read_layout
from tasks.pinned_copy import PinnedCopy, TreeFile, file_lock, list_tree

DATA_DIR = "data"
REMOTES_DIR = ".remotes"
TIMEOUT_S = 3600
"""For one git or DVC call; a push of a large data set is slow, one that hangs must still end."""

_IDENTITY = ("-c", "user.name=passline", "-c", "user.email=passline@localhost", "-c", "commit.gpgsign=false")
_DVC_CONFIG = """\
[core]
    analytics = false
    check_update = false
    autostage = true
    remote = store
[cache]
    type = "reflink,copy"
['remote "store"']
    url = ../../{remotes}/{name}
"""
# DVC's git library reads a user's configuration by itself, whatever the environment says.
_NO_USER_CONFIG = """\
import sys
import pygit2
for level in pygit2.enums.ConfigLevel.SYSTEM, pygit2.enums.ConfigLevel.XDG, pygit2.enums.ConfigLevel.GLOBAL:
    pygit2.settings.search_path[level] = ''
"""
# One child process for a whole job: importing DVC takes longer than most of its calls.
_SAVE = """\
from pathlib import Path
from dvc.repo import Repo
if not Path('.dvc').is_dir():
    Repo.init('.').close()
if not Path('.dvc/config').read_text().strip():
    Path('.dvc/config').write_text(sys.argv[2])
with Repo('.') as repo:
    repo.add(sys.argv[1])
    repo.push()"""
# The configuration of the working tree is passed on: read from a commit, relative remotes would be looked up wrongly.
_FETCH = """\
from dvc.repo import Repo
with Repo('.') as repo:
    config = {'core': dict(repo.config['core']), 'remote': {k: dict(v) for k, v in repo.config['remote'].items()}}
    repo.fetch(targets=[sys.argv[1]], revs=[sys.argv[2]], workspace=False, config=config)"""
_CACHE_DIR = "from dvc.repo import Repo\nwith Repo('.') as repo:\n    print(repo.cache.local.path)"


@dataclass(frozen=True)
class DatasetEntry:
    """One dataset repository of this machine."""

    name: str
    pin: DatasetPin
    message: str


def add_dataset(folder: Path, datasets_home: Path, name: str, message: str, extras: tuple[str, ...] = ()) -> DatasetPin:
    """Make the content of `folder` the newest revision of dataset `name`, and push it to the default remote.

    Content that is the newest revision already gives that revision again. `folder` is only read. Raises DatasetError
    for a folder that is no dataset and DatasetRepoError when git, DVC or the remote fail.
    """
    layout = read_layout(folder)
    ref = DatasetRef(repository=str(datasets_home.absolute() / name), path=DATA_DIR)
    repository = Path(ref.repository)
    with file_lock(datasets_home / ".locks" / f"{name}.lock"):
        with tempfile.TemporaryDirectory(dir=datasets_home, prefix=".adding-") as draft:
            copy_dataset(layout, Path(draft, DATA_DIR), extras)
            if _is_newest_revision(ref, name, Path(draft, DATA_DIR)):
                return resolve(ref, name)
            repository.mkdir(exist_ok=True)
            _replace_folder(Path(draft, DATA_DIR), repository / DATA_DIR)
        if not (repository / ".git").exists():
            _git(repository, "init", "--quiet", "--initial-branch=main", "--template=")
        (datasets_home / REMOTES_DIR / name).mkdir(parents=True, exist_ok=True)
        _run_dvc(repository, _SAVE, DATA_DIR, _DVC_CONFIG.format(remotes=REMOTES_DIR, name=name))
        _git(repository, "add", "--all")
        if _git(repository, "status", "--porcelain"):
            _git(repository, *_IDENTITY, "commit", "--quiet", "--no-verify", "--message", message)
        return resolve(ref, name)


def _is_newest_revision(ref: DatasetRef, name: str, data: Path) -> bool:
    """Whether the newest revision has exactly the files of `data`. It is committed after its push, so it is whole."""
    if not (Path(ref.repository) / f"{ref.path}.dvc").is_file():
        return False
    files = _Objects(Path(ref.repository), resolve(ref, name)).read_listing()
    return files is not None and set(files) == set(list_tree(data))


def _replace_folder(new: Path, old: Path) -> None:
    if old.exists():
        shutil.rmtree(old)
    new.rename(old)


def list_datasets(datasets_home: Path) -> tuple[DatasetEntry, ...]:
    """The dataset repositories below `datasets_home`, each with its newest revision, by name."""
    found = []
    for config in sorted(datasets_home.glob("*/.dvc/config")):
        repository = config.parent.parent
        if repository.name.startswith("."):
            continue
        pin = resolve(DatasetRef(repository=str(repository), path=DATA_DIR), repository.name)
        found.append(DatasetEntry(repository.name, pin, _git(repository, "log", "-1", "--format=%s", pin.commit)))
    return tuple(found)


def resolve(ref: DatasetRef, name: str) -> DatasetPin:
    """The exact content that a reference names now. Raises DatasetRepoError naming what is not there."""
    with _opened(ref) as repository:
        commit = _git_or(repository, f"revision {ref.revision!r} of {ref.repository}", "rev-parse", "--verify",
                         "--quiet", "--end-of-options", f"{ref.revision}^{{commit}}")  # fmt: skip
        subject = f"{ref.path}.dvc in commit {commit[:12]} of {ref.repository}"
        text = _git_or(repository, subject, "show", f"{commit}:{ref.path}.dvc")
    out = yaml.safe_load(text)["outs"][0]
    if not str(out.get("md5")).endswith(".dir"):
        action = "Track the dataset folder itself with `dvc add`."
        raise DatasetRepoError(Problem(subject, "a folder tracked by DVC", str(out.get("md5")), action))
    return DatasetPin(
        name=name, ref=ref, commit=commit, dvc_hash=out["md5"], file_count=out["nfiles"], size_bytes=out["size"]
    )


def fetch(pin: DatasetPin, pinned_home: Path) -> Path:
    """A verified, read-only copy of the pinned content, made once per hash; all or nothing.

    Two processes that ask for the same content wait for each other. Raises DatasetRepoError listing the files whose
    content is neither in the cache nor in the remote, or is not what the listing says.
    """
    copy = PinnedCopy(pinned_home, pin)
    with file_lock(copy.lock_file):
        if not copy.is_complete():
            with _opened(pin.ref) as repository:
                objects = _Objects(repository, pin)
                copy.write(objects.listing(), objects.path_of)
    return copy.folder


class _Objects:
    """The content of one pin as DVC's cache holds it, fetched from the remote where it does not."""

    def __init__(self, repository: Path, pin: DatasetPin) -> None:
        self.repository, self.pin = repository, pin
        self.cache = _cache_dir(repository)

    def path_of(self, md5: str) -> Path:
        """Where the cache keeps an object: <2 digits>/<the rest>."""
        return self.cache / md5[:2] / md5[2:]

    def listing(self) -> tuple[TreeFile, ...]:
        """The files of the pinned folder; every object is in the cache afterwards."""
        files = self.read_listing()
        if files is None or self._missing(files):
            failure = self._fetch()
            files = self.read_listing()
            if files is None:
                raise self._incomplete("the list of files", failure)
            if missing := self._missing(files):
                named = ", ".join(f"{file.path} ({file.md5})" for file in missing[:20])
                raise self._incomplete(f"{len(missing)} of {len(files)} files: {named}", failure)
        return files

    def read_listing(self) -> tuple[TreeFile, ...] | None:
        """The files of the pinned folder, or None where the cache has no list of them."""
        listing = self.path_of(self.pin.dvc_hash)
        if not listing.is_file():
            return None
        return tuple(TreeFile(entry["relpath"], entry["md5"]) for entry in json.loads(listing.read_bytes()))

    def _missing(self, files: tuple[TreeFile, ...]) -> list[TreeFile]:
        return [file for file in files if not self.path_of(file.md5).is_file()]

    def _fetch(self) -> str:
        try:
            _run_dvc(self.repository, _FETCH, self.pin.ref.path, self.pin.commit)
        except DatasetRepoError as error:
            return str(error)  # What is missing says more; the reason is told with it.
        return ""

    def _incomplete(self, got: str, failure: str) -> DatasetRepoError:
        subject = f"dataset {self.pin.name} at {self.pin.commit[:12]}"
        reason = f" DVC said: {failure}" if failure else ""
        action = f"Push the revision again (dvc push) or restore the remote, then retry.{reason}"
        return DatasetRepoError(Problem(subject, "complete content in cache or remote", f"missing {got}", action))


def _cache_dir(repository: Path) -> Path:
    """Where DVC keeps objects; DVC itself is asked only where the default is changed, because that takes seconds."""
    for config in (repository / ".dvc" / "config", repository / ".dvc" / "config.local"):
        if config.is_file() and re.search(r"(?m)^\s*dir\s*=", config.read_text("utf-8")):
            return Path(_run_dvc(repository, _CACHE_DIR).strip().splitlines()[-1])
    return repository / ".dvc" / "cache" / "files" / "md5"


@contextmanager
def _opened(ref: DatasetRef) -> Iterator[Path]:
    """The repository as a folder of this machine; a URL is cloned for the time of use."""
    if "://" in ref.repository or ref.repository.startswith("git@"):
        with tempfile.TemporaryDirectory(prefix="passline-dataset-") as clone:
            _git(Path(clone), "clone", "--quiet", "--no-checkout", ref.repository, clone)
            _git(Path(clone), "checkout", "--quiet", ref.revision, "--", ".dvc")
            yield Path(clone)
        return
    repository = Path(ref.repository).absolute()
    if not (repository / ".git").exists():
        action = "Make one with `passline dataset add`, or correct the path."
        raise DatasetRepoError(Problem(str(repository), "a git + DVC repository", "no such repository", action))
    yield repository


def _environment() -> dict[str, str]:
    """For git and DVC: no user or system configuration, no telemetry, no prompts, no outer repository."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "DVC_"))}
    return kept | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "DVC_NO_ANALYTICS": "1",
        "DO_NOT_TRACK": "1",
        "LC_ALL": "C.UTF-8",
    }


def _git(repository: Path, *arguments: str) -> str:
    return _run(["git", *arguments], repository, "git " + " ".join(arguments)[:200])


def _git_or(repository: Path, subject: str, *arguments: str) -> str:
    """Like `_git`; a failure says that `subject` is not there."""
    try:
        return _git(repository, *arguments)
    except DatasetRepoError as error:
        action = "Correct the reference; `git log` in the repository shows the revisions."
        raise DatasetRepoError(Problem(subject, "to exist", str(error)[-300:] or "nothing", action)) from None


def _run_dvc(repository: Path, script: str, *arguments: str) -> str:
    # -P: the folder that we work in is not looked at for modules.
    command = [sys.executable, "-P", "-W", "ignore", "-c", _NO_USER_CONFIG + script, *arguments]
    return _run(command, repository, f"dvc ({script.splitlines()[-1].strip()})")


def _run(command: list[str], folder: Path, subject: str) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except FileNotFoundError:
        problem = Problem(command[0], "an installed program", "none on the PATH", f"Install {command[0]}.")
        raise DatasetRepoError(problem) from None
    except subprocess.TimeoutExpired:
        problem = Problem(subject, f"an end within {TIMEOUT_S} s", "none", "Check the remote.")
        raise DatasetRepoError(problem) from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        got = f"exit {done.returncode}: " + " | ".join(said[-3:])
        raise DatasetRepoError(Problem(f"{subject} in {folder}", "success", got, "See the message."))
    return done.stdout.rstrip("\n")
