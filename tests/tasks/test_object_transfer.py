from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.datasets import object_transfer
from tasks.datasets.object_transfer import Failure, Store, words_of

CONTENT = [b"one", b"two", b"three", b"four"]


def oid_of(content: bytes) -> str:
    """DVC's name for a content."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


OIDS = [oid_of(content) for content in CONTENT]


class FakeFiles:
    """A remote in memory whose calls a test may disturb: `disturb(oid, attempt)` raises or gives other bytes."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.retries = 5
        self.calls: Counter[str] = Counter()
        self.disturb: Callable[[str, int], bytes | None] = lambda oid, attempt: None
        self.etags = True
        self.tag = oid_of

    def _at(self, path: str) -> tuple[str, bytes | None]:
        oid = path.rpartition("/")[2]
        self.calls[oid] += 1
        return oid, self.disturb(oid, self.calls[oid])

    def get_file(self, path: str, target: str) -> None:
        oid, other = self._at(path)
        if oid not in self.content:
            raise FileNotFoundError(path)
        Path(target).write_bytes(self.content[oid] if other is None else other)

    def put_file(self, source: str, path: str) -> None:
        oid, other = self._at(path)
        self.content[oid] = Path(source).read_bytes() if other is None else other

    def info(self, path: str) -> dict[str, Any]:
        oid = path.rpartition("/")[2]
        if oid not in self.content:
            raise FileNotFoundError(path)
        tag = {"ETag": f'"{self.tag(self.content[oid])}"'} if self.etags else {}
        return {"size": len(self.content[oid])} | tag

    def find(self, path: str, detail: bool) -> dict[str, dict[str, Any]]:
        assert detail
        return {f"{path}/{oid}": self.info(oid) for oid in self.content}

    def invalidate_cache(self) -> None:
        """Nothing is kept."""


class Site:
    """A cache folder and a remote in memory."""

    def __init__(self, folder: Path, cached: list[bytes], stored: list[bytes]) -> None:
        self.cache = folder / "files" / "md5"
        self.files = FakeFiles({oid_of(content): content for content in stored})
        for content in cached:
            path = Path(self._path(oid_of(content)))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        fs = SimpleNamespace(fs=self.files, protocol="s3", info=self._infos)
        remote = SimpleNamespace(fs=fs, path="bucket", oid_to_path=lambda oid: f"bucket/{oid}")
        self.store = Store(SimpleNamespace(path=str(self.cache), oid_to_path=self._path), remote)

    def _path(self, oid: str) -> str:
        return f"{self.cache}/{oid[:2]}/{oid[2:]}"

    def _infos(self, paths: list[str], return_exceptions: bool) -> list[Any]:
        assert return_exceptions
        found = []
        for path in paths:
            try:
                found.append(self.files.info(path))
            except FileNotFoundError as error:
                found.append(error)
        return found

    def cached(self) -> set[str]:
        """The names of the objects in the cache; all must have the content of their name."""
        paths = [path for path in self.cache.rglob("*") if path.is_file()]
        assert {path.parent.name + path.name for path in paths} == {oid_of(path.read_bytes()) for path in paths}
        return {path.parent.name + path.name for path in paths}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(object_transfer, "RETRY_DELAYS_S", (0.0, 0.0, 0.0))


def test_only_what_is_missing_is_fetched(tmp_path):
    site = Site(tmp_path, CONTENT[:2], CONTENT)
    assert site.store.fetch(OIDS) == []
    assert site.cached() == set(OIDS)
    assert site.files.calls == Counter(OIDS[2:])
    assert not (tmp_path / "files/drafts").exists()


def test_all_that_is_missing_is_told(tmp_path):
    site = Site(tmp_path, [], CONTENT[1:3])
    failures = site.store.fetch(OIDS)
    assert [(failure.oid, failure.kind) for failure in failures] == [(OIDS[0], "missing"), (OIDS[3], "missing")]
    assert site.cached() == set(OIDS[1:3])


def raises(error: Exception, until: int) -> Callable[[str, int], bytes | None]:
    """Every object fails in its first attempts."""

    def disturb(_: str, attempt: int) -> bytes | None:
        if attempt <= until:
            raise error
        return None

    return disturb


PASSING = {
    "busy": raises(OSError(errno.EBUSY, "SlowDown"), 3),
    "cut": raises(ConnectionResetError("cut"), 3),
    "wrong bytes": lambda oid, attempt: b"x" if attempt <= 3 else None,
    "half of it": lambda oid, attempt: b"" if attempt <= 1 else None,
}


@pytest.mark.parametrize("disturb", PASSING.values(), ids=PASSING)
def test_what_passes_is_tried_again(tmp_path, disturb):
    site = Site(tmp_path, [], CONTENT)
    site.files.disturb = disturb
    assert site.store.fetch(OIDS) == []
    assert site.cached() == set(OIDS)


FINAL = {
    "no key": type("NoCredentialsError", (Exception,), {})("none"),
    "refused": PermissionError("Forbidden"),
    "501": OSError(errno.ENOSYS, "NotImplemented"),
    "disk full": OSError(errno.ENOSPC, "No space left on device"),
}


@pytest.mark.parametrize("error", FINAL.values(), ids=FINAL)
def test_what_does_not_pass_ends_all_at_once(tmp_path, monkeypatch, error):
    monkeypatch.setattr(object_transfer, "WORKERS", 1)
    site = Site(tmp_path, [], CONTENT)
    site.files.disturb = raises(error, 99)
    assert [failure.kind for failure in site.store.fetch(OIDS)] == ["failed"]
    assert site.files.calls == {OIDS[0]: 1}


def test_wrong_bytes_do_not_keep_others_from_coming(tmp_path):
    site = Site(tmp_path, [], CONTENT)
    site.files.disturb = lambda oid, attempt: b"x" if oid == OIDS[1] else None
    assert site.store.fetch(OIDS) == [Failure(OIDS[1], "wrong", oid_of(b"x"))]
    assert site.cached() == {OIDS[0], *OIDS[2:]}


@pytest.mark.parametrize("list_from", [1, 100], ids=["remote listed", "each asked for"])
def test_only_what_the_remote_lacks_is_sent(tmp_path, monkeypatch, list_from):
    monkeypatch.setattr(object_transfer, "LIST_FROM", list_from)
    site = Site(tmp_path, CONTENT, CONTENT[:1])
    site.files.content[OIDS[1]] = b"cut"[:1]
    site.files.content[OIDS[2]] = b"x" * len(CONTENT[2])
    assert site.store.push(OIDS[:-1], OIDS[-1]) == []
    assert site.files.content == dict(zip(OIDS, CONTENT, strict=True))
    assert site.files.calls == Counter(OIDS[1:])


@pytest.mark.parametrize("etags", [True, False], ids=["ETag is the MD5", "read back"])
def test_an_upload_that_is_not_stored_as_it_is_fails(tmp_path, etags):
    site = Site(tmp_path, CONTENT, [])
    site.files.etags = etags
    site.files.disturb = lambda oid, attempt: b"chunk" if oid == OIDS[0] else None
    failures = site.store.push(OIDS[:-1], OIDS[-1])
    assert [(failure.oid, failure.kind) for failure in failures] == [(OIDS[0], "wrong")]


def test_same_size_without_an_etag_is_read_back(tmp_path):
    site = Site(tmp_path, CONTENT[:1], [])
    site.files.etags = False
    site.files.disturb = lambda oid, attempt: b"x" * 3 if attempt == 1 else None
    assert site.store.push([], OIDS[0]) == []
    assert site.files.content[OIDS[0]] == CONTENT[0]


def test_the_words_of_an_error_have_its_cause():
    error = OSError(16, "busy")
    error.__cause__ = ValueError("SlowDown at PutObject")
    assert words_of(error) == "OSError: [Errno 16] busy (ValueError: SlowDown at PutObject)"
    assert words_of(ValueError("alone")) == "ValueError: alone"


def test_drafts_of_killed_processes_go(tmp_path):
    site = Site(tmp_path, [], CONTENT)
    drafts = tmp_path / "files/drafts"
    here = socket.gethostname()
    for left in f"{here}-999999999", f"{here}-{os.getppid()}", "elsewhere-999999999":
        (drafts / left).mkdir(parents=True)
        (drafts / left / "half").write_bytes(b"x")
    site.store.fetch(OIDS)
    assert {path.name for path in drafts.iterdir()} == {f"{here}-{os.getppid()}", "elsewhere-999999999"}


def test_a_damaged_object_of_the_cache_is_not_sent_and_goes(tmp_path):
    site = Site(tmp_path, CONTENT, [])
    path = Path(site.store.cache.oid_to_path(OIDS[2]))
    path.write_bytes(b"x")
    assert [(failure.oid, failure.kind) for failure in site.store.push(OIDS[:-1], OIDS[-1])] == [(OIDS[2], "cache")]
    assert not path.exists()


def test_etags_that_are_no_md5_anywhere_prove_nothing(tmp_path):
    """As with encryption by keys of the store: nothing is sent again because of them."""
    site = Site(tmp_path, CONTENT, CONTENT)
    site.files.tag = lambda content: hashlib.md5(b"key" + content, usedforsecurity=False).hexdigest()
    assert site.store.push(OIDS[:-1], OIDS[-1]) == []
    assert site.files.calls == Counter()
