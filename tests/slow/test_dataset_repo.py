from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from builders import encode, noisy_plate, write_mini_dataset
from data_contracts.dataset import DatasetPin, DatasetRef
from data_contracts.errors import DatasetError, DatasetRepoError
from tasks.dataset_repo import add_dataset, fetch, list_datasets, resolve
from tasks.pin import pin
from tasks.pinned_copy import list_tree, remove_tree


@dataclass(frozen=True)
class Repo:
    """A dataset with two revisions; the second has one picture more."""

    source: Path
    home: Path
    first: DatasetPin
    again: DatasetPin
    second: DatasetPin
    source_untouched: bool

    @property
    def repository(self) -> Path:
        return self.home / "plates"


@pytest.fixture(scope="module")
def repo(tmp_path_factory) -> Repo:
    outer = tmp_path_factory.mktemp("outer")
    # A git repository around it that ignores the state folder, as the project's own does; and a broken user set-up.
    subprocess.run(["git", "init", "-q", str(outer)], check=True, env={"PATH": os.environ["PATH"]})
    (outer / ".gitignore").write_text("var/\n")
    user = outer / "user"
    user.mkdir()
    (user / ".gitconfig").write_text("[commit]\n gpgsign = true\n[core\n broken")
    source, home = write_mini_dataset(outer / "plates").folder, outer / "var" / "datasets"
    home.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(user))
        patch.setenv("GIT_DIR", str(outer / ".git"))
        before = list_tree(source)
        first = add_dataset(source, home, "plates", "first delivery")
        again = add_dataset(source, home, "plates", "nothing new")
        untouched = list_tree(source) == before
        (source / "images/train/extra.png").write_bytes(encode(noisy_plate()))
        second = add_dataset(source, home, "plates", "second delivery")
    return Repo(source, home, first, again, second, untouched)


def _git(repository: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", repository, *arguments], check=True, capture_output=True, text=True).stdout


def test_a_revision_is_committed_and_the_source_stays_as_it_was(repo):
    assert _git(repo.repository, "log", "--format=%s|%ae").splitlines() == [
        "second delivery|passline@localhost",
        "first delivery|passline@localhost",
    ]
    assert _git(repo.repository, "status", "--porcelain") == ""
    assert repo.source_untouched


def test_unchanged_content_is_the_same_revision(repo):
    assert repo.again == repo.first


def test_changed_content_is_a_new_revision(repo):
    assert repo.second.dvc_hash != repo.first.dvc_hash
    assert repo.second.file_count == repo.first.file_count + 1


def test_revisions_resolve_by_commit_and_by_name(repo):
    ref = DatasetRef(repository=str(repo.repository), revision="HEAD~1")
    assert resolve(ref, "plates").dvc_hash == repo.first.dvc_hash
    by_commit = DatasetRef(repository=str(repo.repository), revision=repo.first.commit)
    assert resolve(by_commit, "plates").commit == repo.first.commit
    assert [(entry.name, entry.message, entry.pin.commit) for entry in list_datasets(repo.home)] == [
        ("plates", "second delivery", repo.second.commit)
    ]


UNKNOWN = {
    "revision": ({"revision": "v9"}, "v9"),
    "option as revision": ({"revision": "--all"}, "--all"),
    "path": ({"path": "pictures"}, r"pictures\.dvc"),
    "repository": ({"repository": "/nowhere"}, "/nowhere"),
}


@pytest.mark.parametrize(("change", "words"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_there_is_named(repo, change, words):
    ref = DatasetRef.model_validate({"repository": str(repo.repository)} | change)
    with pytest.raises(DatasetRepoError, match=words):
        resolve(ref, "plates")


def test_a_pinned_copy_is_complete_and_read_only(repo, tmp_path):
    pinned = pin(DatasetRef(repository=str(repo.repository), revision="HEAD~1"), "plates", tmp_path)
    assert pinned.folder == tmp_path / repo.first.dvc_hash.removesuffix(".dir")
    files = [path for path in pinned.folder.rglob("*") if path.is_file()]
    assert len(files) == repo.first.file_count
    assert {path.stat().st_mode & 0o222 for path in pinned.folder.rglob("*")} == {0}
    assert yaml.safe_load((pinned.folder / "data.yaml").read_text()) == {
        "train": "images/train", "val": "images/val", "names": {0: "square", 1: "line"},
    }  # fmt: skip
    assert not (pinned.folder / "images/train/extra.png").exists()
    remove_tree(pinned.folder)


def test_a_second_fetch_uses_the_copy_and_a_damaged_one_is_made_again(repo, tmp_path):
    folder = fetch(repo.second, tmp_path)
    made = folder.stat().st_ino
    assert fetch(repo.second, tmp_path).stat().st_ino == made
    folder.chmod(0o755)
    (folder / "data.yaml").chmod(0o644)
    (folder / "data.yaml").write_text("cut")
    assert "names" in (fetch(repo.second, tmp_path) / "data.yaml").read_text()
    remove_tree(folder)


def test_two_that_fetch_at_once_wait_for_each_other(repo, tmp_path):
    with ThreadPoolExecutor(2) as pool:
        folders = list(pool.map(lambda _: fetch(repo.second, tmp_path), range(2)))
    assert folders[0] == folders[1]
    assert len(list_tree(folders[0])) == repo.second.file_count
    remove_tree(folders[0])


def test_missing_content_is_listed_and_a_retry_works(repo, tmp_path):
    cache, remote = repo.repository / ".dvc/cache/files/md5", repo.home / ".remotes/plates/files/md5"
    lost = next(file for file in list_tree(repo.source) if file.path == "images/train/extra.png").md5
    kept = tmp_path / "kept"
    (cache / lost[:2] / lost[2:]).unlink()
    shutil.move(remote / lost[:2] / lost[2:], kept)
    with pytest.raises(DatasetRepoError, match=f"1 of {repo.second.file_count} files: images/train/extra.png"):
        fetch(repo.second, tmp_path / "pinned")
    assert [path.suffix for path in (tmp_path / "pinned").iterdir()] == [".lock"]
    shutil.move(kept, remote / lost[:2] / lost[2:])
    folder = fetch(repo.second, tmp_path / "pinned")
    assert (folder / "images/train/extra.png").read_bytes() == encode(noisy_plate())
    remove_tree(folder)


def test_wrong_bytes_in_the_cache_are_refused(repo, tmp_path):
    file = next(file for file in list_tree(repo.source) if file.path.startswith("images/val/"))
    cached = repo.repository / ".dvc/cache/files/md5" / file.md5[:2] / file.md5[2:]
    right = cached.read_bytes()
    cached.chmod(0o644)
    cached.write_bytes(b"x" * len(right))
    with pytest.raises(DatasetRepoError, match=f"content of {file.path}"):
        fetch(repo.second, tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    cached.write_bytes(right)


def test_a_folder_that_is_no_dataset_changes_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match=r"data\.yaml"):
        add_dataset(tmp_path / "empty", tmp_path / "home", "plates", "m")
    assert not (tmp_path / "home").exists()
