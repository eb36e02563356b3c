"""Before data are fetched: the revision and the remote are asked, quickly and without fetching anything."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from data_contracts.dataset import DatasetRef
from tasks.dataset_ahead import check_remote, look_at_source
from tasks.datasets.dataset_remote import Remote, config_text
from tasks.datasets.git_dvc import commit_all, run_git

DVC_FILE = f"outs:\n- md5: {'a' * 32}.dir\n  size: 5000\n  nfiles: 3\n  hash: md5\n  path: data\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A dataset repository with one revision, whose content is on a remote only."""
    folder = tmp_path / "plates"
    (folder / ".dvc").mkdir(parents=True)
    run_git(folder, "init", "--quiet", "--initial-branch=main", "--template=")
    (tmp_path / "store").mkdir()
    (folder / ".dvc" / "config").write_text(config_text(Remote("../../store")))
    (folder / "data.dvc").write_text(DVC_FILE)
    commit_all(folder, "first")
    return folder


def words(repository: str | Path, revision: str = "HEAD", pinned: Path = Path("none")) -> str:
    facts = look_at_source(DatasetRef(repository=str(repository), revision=revision), "plates", pinned)
    return "\n".join(map(str, facts.problems))


def test_the_size_is_known_before_anything_is_fetched(repository: Path) -> None:
    facts = look_at_source(DatasetRef(repository=str(repository)), "plates", repository / "pinned")
    assert (facts.size_bytes, facts.problems) == (5000, ())


def test_a_remote_that_is_not_mounted_is_named(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "store").rmdir()
    found = words(repository)
    assert f"data remote {tmp_path / 'store'}: expected a folder, got no such folder" in found


@pytest.mark.parametrize(
    ("case", "repository", "revision", "said"),
    [
        ("no folder", "no/such/folder", "HEAD", "no/such/folder: no folder"),
        ("no repository", ".", "HEAD", "expected a git + DVC repository"),
        ("at a URL", "https://git.example/data.git", "HEAD", ""),
        ("over ssh", "git@git.example:data.git", "HEAD", ""),
    ],
)
def test_the_repository(case: str, repository: str, revision: str, said: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = words(repository, revision)
    assert said in found
    assert bool(found) == bool(said)


def test_a_revision_that_is_not_there_is_named(repository: Path) -> None:
    assert "revision 'v9'" in words(repository, "v9")


@contextmanager
def store(status: int) -> Iterator[str]:
    """A store that answers each question with `status`."""

    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "said"),
    [(200, ""), (403, ""), (404, "expected the bucket 'plates', got no such bucket"), (503, "got HTTP 503")],
)
def test_a_bucket(status: int, said: str) -> None:
    with store(status) as url:
        found = "".join(map(str, check_remote(Remote("s3://plates/nightly", url))))
    assert said in found
    assert bool(found) == bool(said)


def test_a_store_that_is_not_there_is_named() -> None:
    found = "".join(map(str, check_remote(Remote("s3://plates", "http://127.0.0.1:9"))))
    assert "data remote s3://plates at http://127.0.0.1:9: expected an answer, got ConnectError" in found
