"""Dataset repositories: made, listed, and pinned. The face of the adapter to git and DVC.

    <datasets home>/<name>/            git + DVC repository; `data/` is tracked by DVC
    <datasets home>/.remotes/<name>/   its remote, where no other is named

`dataset_revisions` reads git's side, `dataset_objects` and `dataset_remote` the content, `git_dvc` runs both programs.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import TypeAdapter, ValidationError

from data_contracts.base import Name
from data_contracts.dataset import DatasetPin, DatasetRef
from data_contracts.errors import DatasetError, DatasetRepoError, Problem, raise_if_any
from tasks.datasets.dataset_copy import copy_dataset
from tasks.datasets.dataset_layout import DatasetLayout, read_layout
from tasks.datasets.dataset_objects import Objects, open_objects, tell_failures
from tasks.datasets.dataset_remote import (
    Remote,
    config_text,
    default_name,
    default_remote,
    default_remote_of,
    parse_remote,
)
from tasks.datasets.dataset_revisions import DATA_DIR, DatasetEntry, history, opened, previous_revision, resolve
from tasks.datasets.dataset_yaml import read_dataset_yaml
from tasks.datasets.git_dvc import commit_all, run_dvc, run_git
from tasks.datasets.pinned_copy import PinnedCopy, disk_errors_told, file_lock, list_tree, remove_tree
from tasks.importers.classes import require_kept_classes

if TYPE_CHECKING:
    from tasks.splits import SplitConfig

__all__ = [
    "DATA_DIR", "DatasetEntry", "add_dataset", "fetch", "history", "list_datasets", "previous_revision", "resolve",
    "verify",
]  # fmt: skip

logger = logging.getLogger(__name__)


def add_dataset(
    folder: Path,
    datasets_home: Path,
    name: str,
    message: str,
    extras: tuple[str, ...] = (),
    *,
    splits: SplitConfig | None = None,
    remote: str | None = None,
    endpoint_url: str | None = None,
    new_classes: bool = False,
) -> DatasetPin:
    """Make the content of `folder` the newest revision of dataset `name`, after its content is confirmed on the remote.

    Content that is the newest revision already gives that revision again, and what the remote has lost of it is sent
    again. `folder` is only read. `remote` is a folder or s3://bucket/prefix, set when the repository is made. A push
    that fails leaves the repository as it was; what was sent is not sent again. `new_classes`: the class list is meant
    to differ from that of the revision before. Raises DatasetError for a folder that is no dataset or has other
    classes, and DatasetRepoError when git, DVC or the remote fail.
    """
    layout = read_layout(folder)
    _require_name(name)
    wanted = parse_remote(remote, endpoint_url) if remote is not None else None
    home = datasets_home.absolute()
    repository, new, draft = home / name, home / f".new-{name}", home / f".adding-{name}"
    with disk_errors_told(home), file_lock(home / ".locks" / f"{name}.lock"):
        try:
            for left in (new, draft):  # Of an add that was killed.
                remove_tree(left)
            existing = _is_repository(repository, wanted)
            before = repository / DATA_DIR if existing else None
            if before is not None and not new_classes:
                _require_kept_classes(layout, before)
            copy_dataset(layout, draft, extras, previous=before, splits=splits)
            if not existing:
                _make_repository(new, wanted or default_remote(name))
            out = _send(repository if existing else new, draft)
            _commit(repository if existing else new, draft, out, message.strip() or "new revision")
            if not existing:
                new.rename(repository)
        finally:
            for left in (new, draft):
                remove_tree(left)
    return resolve(DatasetRef(repository=str(repository), path=DATA_DIR), name)


def _require_kept_classes(layout: DatasetLayout, before: Path) -> None:
    """Raise DatasetError where the class list differs from that of the revision before, as it lies in `before`."""
    try:
        kept = read_dataset_yaml(before).class_names
    except DatasetError as error:  # The folder is DVC's working copy, and somebody altered it; it is made anew below.
        logger.warning("the class list of the revision before could not be compared: %s", error)
        return
    require_kept_classes(layout.class_names, kept, layout.root)


def _require_name(name: str) -> None:
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError:
        expected = "1 to 63 of a-z, 0-9, dot, dash and underscore, a letter or digit first"
        raise DatasetError(Problem("name of the dataset", expected, repr(name), "Choose another name.")) from None


def _is_repository(repository: Path, wanted: Remote | None) -> bool:
    """Whether there is a repository with revisions. Refuses what is something else, or has another remote."""
    if not repository.exists() or not any(repository.iterdir()):
        return False
    if not (repository / ".git").exists() or not (repository / f"{DATA_DIR}.dvc").is_file():
        got = "a folder without revisions"
        raise DatasetRepoError(Problem(str(repository), "a dataset repository, or nothing", got, "Move it away."))
    if wanted is not None:
        _refuse_other_remote(repository / ".dvc", wanted)
    return True


def _refuse_other_remote(dvc_folder: Path, wanted: Remote) -> None:
    kept = default_remote_of(dvc_folder)
    if kept == wanted:
        return
    action = (
        "Leave the option out. To move a dataset: `dvc fetch --all-commits`, "
        f"`dvc remote modify {default_name(dvc_folder)} url ...`, `dvc push --all-commits` in {dvc_folder.parent}."
    )
    raise DatasetRepoError(Problem("remote", f"{kept}, which the dataset has", str(wanted), action))


def _make_repository(repository: Path, remote: Remote) -> None:
    repository.mkdir()
    run_git(repository, "init", "--quiet", "--initial-branch=main", "--template=")
    run_dvc(repository, "init", f"dvc init in {repository}")
    (repository / ".dvc" / "config").write_text(config_text(remote), "utf-8")
    (repository / ".gitignore").write_text(f"/{DATA_DIR}\n", "utf-8")
    if remote.is_folder:
        Path(remote.located(repository / ".dvc").url).mkdir(parents=True, exist_ok=True)


def _send(repository: Path, data: Path) -> dict[str, Any]:
    """Content goes to the cache and to the remote; gives what the .dvc file says of it."""
    remote = default_remote_of(repository / ".dvc")
    for _ in range(2):  # Damaged objects of the cache are removed on the way, and made again from `data`.
        out = run_dvc(repository, "save", f"putting {data} into the cache of {repository}", data=str(data))
        failures = run_dvc(repository, "push", f"push to {remote}", listing=out["md5"])["failures"]
        if {failure["kind"] for failure in failures} != {"cache"}:
            break
    raise_if_any(DatasetRepoError, tell_failures(failures, list_tree(data), str(remote), "take") if failures else ())
    return out


def _commit(repository: Path, data: Path, out: dict[str, Any], message: str) -> None:
    remove_tree(repository / DATA_DIR)
    data.rename(repository / DATA_DIR)
    dvc_file = repository / f"{DATA_DIR}.dvc"
    if not dvc_file.is_file() or out["md5"] not in dvc_file.read_text("utf-8"):
        fields = {"outs": [out | {"hash": "md5", "path": DATA_DIR}]}
        dvc_file.write_text(yaml.safe_dump(fields, sort_keys=False), "utf-8")
    commit_all(repository, message)


def list_datasets(datasets_home: Path) -> tuple[DatasetEntry, ...]:
    """The dataset repositories below `datasets_home`, each with its newest revision, by name."""
    found: list[DatasetEntry] = []
    for config in sorted(datasets_home.glob("*/.dvc/config")):
        repository = config.parent.parent
        if not repository.name.startswith("."):
            found += history(repository, repository.name)[:1]
    return tuple(found)


def fetch(pin: DatasetPin, pinned_home: Path, *, verify: bool = False) -> Path:
    """A verified, read-only copy of the pinned content, made once per hash; all or nothing.

    A copy that somebody altered is made again; `verify` reads all of it to find out. Two processes that ask for the
    same content wait for each other. Raises DatasetRepoError listing the files whose content is neither in the cache
    nor in the remote, or is damaged there, and when the disk is full.
    """
    copy = PinnedCopy(pinned_home, pin)
    with disk_errors_told(copy.home), file_lock(copy.lock_file):
        if verify and (altered := copy.altered()):
            logger.warning("%d files of %s are not as pinned: %s", len(altered), copy.folder, ", ".join(altered[:20]))
        if not copy.is_complete():
            with opened(pin.ref.repository) as repository:
                _make_copy(copy, open_objects(repository, pin, copy.home / ".objects"))
    return copy.folder


def _make_copy(copy: PinnedCopy, objects: Objects) -> None:
    damaged = copy.write(objects.listing(), objects.path_of)
    if damaged:
        objects.drop(damaged)
        damaged = copy.write(objects.listing(), objects.path_of)
    action = "The disk is not to be trusted: check it, then retry."
    raise_if_any(
        DatasetRepoError,
        (Problem(f"content of {file.path}", f"md5 {file.md5}", "something else, again", action) for file in damaged),
    )


def verify(pin: DatasetPin, pinned_home: Path) -> tuple[str, ...]:
    """The files of the pinned copy that are not as pinned, by reading all of them; `fetch` then makes it again."""
    copy = PinnedCopy(pinned_home, pin)
    with disk_errors_told(copy.home), file_lock(copy.lock_file):
        return copy.altered()
