from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from builders import encode, noisy_plate, write_mini_dataset
from data_contracts.dataset import DatasetPin, DatasetRef
from data_contracts.errors import DatasetError, DatasetRepoError
from tasks.dataset_repo import add_dataset, fetch, history, list_datasets, previous_revision, resolve, verify
from tasks.datasets.pinned_copy import TreeFile, list_tree, remove_tree
from tasks.pin import pin


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


def test_a_second_fetch_uses_the_copy(repo, tmp_path):
    folder = fetch(repo.second, tmp_path)
    made = folder.stat().st_ino
    assert fetch(repo.second, tmp_path).stat().st_ino == made
    remove_tree(folder)


def _rewrite(file: Path, content: bytes) -> None:
    file.chmod(0o644)
    file.write_bytes(content)


def _same_size_and_time(folder: Path) -> None:
    label = folder / "data.yaml"
    facts = label.stat()
    _rewrite(label, b"#" * facts.st_size)
    os.utime(label, ns=(facts.st_atime_ns, facts.st_mtime_ns))


ALTERED = {
    "cut": (lambda folder: _rewrite(folder / "data.yaml", b"cut"), False),
    "same size": (lambda folder: _rewrite(folder / "data.yaml", b"#" * (folder / "data.yaml").stat().st_size), False),
    "one more": (lambda folder: (folder / "images.cache").write_bytes(b""), False),
    "one gone": (lambda folder: (folder / "images/train/extra.png").unlink(), False),
    "a link": (lambda folder: (folder / "more").symlink_to("data.yaml"), False),
    "same size and time, asked for": (_same_size_and_time, True),
}


@pytest.mark.parametrize(("alter", "asked"), ALTERED.values(), ids=ALTERED)
def test_an_altered_copy_is_made_again(repo, tmp_path, alter, asked):
    folder = fetch(repo.second, tmp_path)
    right = list_tree(folder)
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        path.chmod(0o755)
    alter(folder)
    assert list_tree(fetch(repo.second, tmp_path, verify=asked)) == right
    assert verify(repo.second, tmp_path) == ()
    remove_tree(folder)


def test_verify_names_what_was_altered_and_the_next_fetch_mends_it(repo, tmp_path):
    folder = fetch(repo.second, tmp_path)
    _same_size_and_time(folder)
    assert verify(repo.second, tmp_path) == ("data.yaml",)
    assert "names" in (fetch(repo.second, tmp_path) / "data.yaml").read_text()
    remove_tree(folder)


def test_a_copy_that_was_only_touched_stays(repo, tmp_path):
    folder = fetch(repo.second, tmp_path)
    made = folder.stat().st_ino
    os.utime(folder / "data.yaml", (1, 1))
    assert fetch(repo.second, tmp_path).stat().st_ino == made
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


def _damage(path: Path) -> bytes:
    right = path.read_bytes()
    _rewrite(path, b"x" * len(right))
    return right


def test_wrong_bytes_in_the_cache_are_fetched_again(repo, tmp_path):
    cached = repo.repository / ".dvc/cache/files/md5"
    for oid in _picture(repo).md5, repo.second.dvc_hash:
        right = _damage(cached / oid[:2] / oid[2:])
        folder = fetch(repo.second, tmp_path / oid)
        assert len(list_tree(folder)) == repo.second.file_count
        assert (cached / oid[:2] / oid[2:]).read_bytes() == right
        remove_tree(folder)


def test_wrong_bytes_in_cache_and_remote_are_refused(repo, tmp_path):
    oid = _picture(repo).md5
    places = [
        folder / oid[:2] / oid[2:]
        for folder in (repo.repository / ".dvc/cache/files/md5", repo.home / ".remotes/plates/files/md5")
    ]
    right = [_damage(place) for place in places]
    with pytest.raises(DatasetRepoError, match=f"content of {_picture(repo).path} on remote .*expected md5 {oid}"):
        fetch(repo.second, tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    _rewrite(places[1], right[1])
    remove_tree(fetch(repo.second, tmp_path))


def _picture(repo: Repo) -> TreeFile:
    return next(file for file in list_tree(repo.source) if file.path.startswith("images/val/"))


def test_history_is_newest_first_and_leaves_out_commits_without_data(repo):
    assert [(entry.pin.commit, entry.message) for entry in history(repo.repository, "plates")] == [
        (repo.second.commit, "second delivery"),
        (repo.first.commit, "first delivery"),
    ]


def test_the_previous_revision(repo):
    before = previous_revision(repo.second)
    assert (before.commit, before.dvc_hash) == (repo.first.commit, repo.first.dvc_hash)
    assert previous_revision(before) is None


def test_dvc_sees_nothing_changed_and_makes_the_same_of_the_folder(repo):
    for command in (["status", "--quiet"], ["add", "--quiet", "data"], ["status", "--cloud", "--quiet"]):
        subprocess.run([sys.executable, "-m", "dvc", *command], cwd=repo.repository, check=True)
    assert _git(repo.repository, "status", "--porcelain") == ""


def _elsewhere(repo: Repo, kind: str, folder: Path) -> str:
    """The repository as others name it."""
    if kind == "url":
        return f"file://{repo.repository}"
    _git(repo.repository, "clone", "--quiet", "--bare", str(repo.repository), str(folder / "plates.git"))
    _git(folder / "plates.git", "branch", "night", "HEAD~1")
    return str(folder / "plates.git") if kind == "bare" else f"file://{folder / 'plates.git'}"


@pytest.mark.parametrize("kind", ["url", "bare", "url of a bare one"])
def test_a_repository_elsewhere_is_cloned_and_its_relative_remote_is_found(repo, tmp_path, kind):
    home = repo.home / f"mirror {kind}"  # A relative remote is looked up from the place of the repository.
    home.mkdir()
    where = _elsewhere(repo, kind, home)
    (home / ".remotes").symlink_to(repo.home / ".remotes")
    pin = resolve(DatasetRef(repository=where), "plates")
    folder = fetch(pin, tmp_path)
    assert list_tree(folder) == list_tree(repo.repository / "data")
    assert previous_revision(pin).dvc_hash == repo.first.dvc_hash
    remove_tree(folder)


def test_a_branch_of_a_repository_elsewhere(repo, tmp_path):
    where = _elsewhere(repo, "url of a bare one", tmp_path)
    assert resolve(DatasetRef(repository=where, revision="night"), "plates").dvc_hash == repo.first.dvc_hash


def test_a_relative_remote_that_cannot_be_reached_is_refused_in_words(repo, tmp_path):
    where = _elsewhere(repo, "bare", tmp_path)
    pin = resolve(DatasetRef(repository=where), "plates")
    with pytest.raises(DatasetRepoError, match=r"remote 'store' of .*relative folder \.\./\.\./\.remotes/plates"):
        fetch(pin, tmp_path / "pinned")


REFUSED_NAMES = {"path": "../plates", "hidden": ".remotes", "empty": "", "upper case": "Plates"}


@pytest.mark.parametrize("name", REFUSED_NAMES.values(), ids=REFUSED_NAMES)
def test_a_name_that_is_none_is_refused(repo, tmp_path, name):
    with pytest.raises(DatasetError, match="name of the dataset"):
        add_dataset(repo.source, tmp_path / "home", name, "m")
    assert not (tmp_path / "home").exists()


def test_a_remote_is_named_once(repo, tmp_path):
    home, remote = tmp_path / "home", tmp_path / "share"
    pin = add_dataset(repo.source, home, "plates", "m", remote=str(remote))
    assert (
        len([path for path in remote.rglob("*") if path.is_file()])
        == len({file.md5 for file in list_tree(home / "plates/data")}) + 1
    )  # The list of files.
    assert add_dataset(repo.source, home, "plates", "m", remote=str(remote)) == pin
    with pytest.raises(DatasetRepoError, match=r"share, which the dataset has, got .*other"):
        add_dataset(repo.source, home, "plates", "m", remote=str(tmp_path / "other"))
    assert not (home / ".remotes").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_repository_that_somebody_else_owns(repo, tmp_path):
    theirs = shutil.copytree(repo.repository, tmp_path / "theirs")
    for path in (theirs, *theirs.rglob("*")):
        os.chown(path, 12345, 12345)
    remove_tree(theirs / ".dvc/cache")
    shutil.copytree(repo.home / ".remotes", tmp_path / ".remotes")
    ref = DatasetRef(repository=str(theirs))
    folder = fetch(resolve(ref, "plates"), tmp_path / "pinned")
    assert len(list_tree(folder)) == repo.second.file_count
    remove_tree(folder)


def test_two_adds_at_once_become_two_revisions(repo, tmp_path):
    sources = [shutil.copytree(repo.source, tmp_path / f"source{number}") for number in range(2)]
    (sources[1] / "images/train/extra.png").unlink()
    with ThreadPoolExecutor(2) as pool:
        pins = list(pool.map(lambda source: add_dataset(source, tmp_path / "home", "plates", source.name), sources))
    kept = history(tmp_path / "home/plates", "plates")
    assert {entry.pin.commit for entry in kept} == {pin.commit for pin in pins}
    assert {(entry.message, entry.pin.dvc_hash) for entry in kept} == {
        (source.name, pin.dvc_hash) for source, pin in zip(sources, pins, strict=True)
    }


def test_what_a_killed_add_left_is_in_nobodys_way(repo, tmp_path):
    for left in ".new-plates/.dvc", ".adding-plates/images":
        (tmp_path / left).mkdir(parents=True)
        (tmp_path / left / "config").write_text("cut")
    assert list_datasets(tmp_path) == ()
    pin = add_dataset(repo.source, tmp_path, "plates", "m")
    (tmp_path / "plates/data.yaml").write_text("changed and not committed")
    (tmp_path / "plates/data.dvc").write_text("outs: cut")
    (tmp_path / "plates/data/data.yaml").write_text("cut")
    assert add_dataset(repo.source, tmp_path, "plates", "m").dvc_hash == pin.dvc_hash
    assert "names" in (tmp_path / "plates/data/data.yaml").read_text()
    assert pin.dvc_hash in (tmp_path / "plates/data.dvc").read_text()


def test_an_add_over_something_else_is_refused(repo, tmp_path):
    (tmp_path / "plates").mkdir()
    (tmp_path / "plates/mine.txt").write_text("mine")
    with pytest.raises(DatasetRepoError, match=r"plates: expected a dataset repository, or nothing"):
        add_dataset(repo.source, tmp_path, "plates", "m")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".locks", "plates"]


DVC_FILES = {
    "of DVC 2": ("outs:\n- md5: {md5}\n  size: 1\n  nfiles: 1\n  path: data\n", "dvc cache migrate"),
    "one file": (
        "outs:\n- md5: 0123456789abcdef0123456789abcdef\n  hash: md5\n  path: data\n",
        "dataset folder itself",
    ),
    "no size": ("outs:\n- md5: {md5}\n  hash: md5\n  path: data\n", "size and nfiles"),
    "empty": ("", "a .dvc file with one folder"),
    "no YAML": ("outs: [", "a .dvc file with one folder"),
}


@pytest.mark.parametrize(("text", "words"), DVC_FILES.values(), ids=DVC_FILES)
def test_a_revision_that_cannot_be_pinned_is_refused_in_words(repo, tmp_path, text, words):
    _git(repo.repository, "clone", "--quiet", str(repo.repository), str(tmp_path / "clone"))
    (tmp_path / "clone/data.dvc").write_text(text.format(md5=repo.first.dvc_hash))
    who = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    _git(tmp_path / "clone", *who, "commit", "--quiet", "--all", "--message", "by hand")
    with pytest.raises(DatasetRepoError, match=words):
        resolve(DatasetRef(repository=str(tmp_path / "clone")), "plates")
    kept = history(tmp_path / "clone", "plates")
    assert [entry.pin.commit for entry in kept] == [repo.second.commit, repo.first.commit]


def test_a_repository_of_others_with_a_cache_of_its_own(repo, tmp_path):
    """Made with plain git and DVC: another folder, a cache elsewhere, no remote."""
    theirs = tmp_path / "theirs"
    shutil.copytree(repo.repository / "data", theirs / "sets" / "plates")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": os.devnull}
    _git(tmp_path, "init", "--quiet", str(theirs))
    for command in (["init"], ["cache", "dir", "--local", str(tmp_path / "cache")], ["add", "sets/plates"]):
        subprocess.run([sys.executable, "-m", "dvc", *command, "--quiet"], cwd=theirs, check=True, env=environment)
    _git(theirs, "add", "--all")
    _git(theirs, "-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "--quiet", "--message", "theirs")
    ref = DatasetRef(repository=str(theirs), path="sets/plates")
    folder = fetch(resolve(ref, "plates"), tmp_path / "pinned")
    assert list_tree(folder) == list_tree(theirs / "sets/plates")
    remove_tree(folder)
    remove_tree(tmp_path / "cache")
    with pytest.raises(DatasetRepoError, match=r"missing the list of files.*no remote is configured"):
        fetch(resolve(ref, "plates"), tmp_path / "elsewhere")


def test_a_folder_that_is_no_dataset_changes_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match=r"data\.yaml"):
        add_dataset(tmp_path / "empty", tmp_path / "home", "plates", "m")
    assert not (tmp_path / "home").exists()
