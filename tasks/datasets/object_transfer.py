"""Moves content between DVC's cache and a remote: verified, retried, and resumed where it stopped.

DVC's own transfer trusts what a remote sends, keeps a partly written object when a single download fails, and believes
an index of what a remote has had. Here every object is hashed before it gets its name in the cache, and confirmed on
the remote after it was sent. Used inside the DVC process only (`tasks.datasets.dvc_process`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

WORKERS = 8
RETRY_DELAYS_S = (0.5, 2.0, 5.0)
"""Between the attempts at one object; botocore's own attempts lie within each."""
LIST_FROM = 500
"""From so many objects on, a remote is listed as a whole instead of being asked for each."""
_CHUNK_BYTES = 1 << 20
_PLAIN_ETAG = re.compile(r"[0-9a-f]{32}")

Kind = Literal["missing", "wrong", "failed", "cache"]


@dataclass(frozen=True)
class Failure:
    """One object that could not be moved: not there, not what its name says, a failing remote, a damaged cache."""

    oid: str
    kind: Kind
    words: str


class WrongContent(Exception):
    """Bytes that do not have the hash or size that they should."""


class DamagedCache(Exception):
    """An object of the cache that is not what its name says."""


class Store:
    """A remote and the cache, as DVC opened them."""

    def __init__(self, cache: Any, remote: Any) -> None:
        self.cache, self.remote = cache, remote
        self.files = remote.fs.fs
        if hasattr(self.files, "retries"):
            self.files.retries = 1  # One place retries: `_attempt`. Five times five attempts last minutes.

    def fetch(self, oids: Iterable[str]) -> list[Failure]:
        """Bring objects into the cache. Those that are there already are not touched."""
        missing = [oid for oid in oids if not Path(self.cache.oid_to_path(oid)).is_file()]
        with _draft_folder(Path(self.cache.path).parent) as drafts:
            return _for_each(missing, lambda oid: self._download(oid, drafts / oid))

    def push(self, oids: Iterable[str], listing: str) -> list[Failure]:
        """Send objects from the cache, then their list, and confirm size and content of each on the remote."""
        wanted = list(dict.fromkeys(oids))
        known = self._known([*wanted, listing])
        tags_are_md5 = any(_etag(found) == oid.removesuffix(".dir") for oid, found in known.items())
        place = self.remote if self._is_folder else self.cache  # A draft can be renamed on its own disk only.
        with _draft_folder(Path(place.path).parent) as drafts:
            for part in wanted, [listing]:
                lacking = [oid for oid in part if not self._is_there(oid, known.get(oid), tags_are_md5)]
                # Missing is then the bucket.
                failures = _for_each(lacking, lambda oid: self._upload(oid, drafts / oid), end=("failed", "missing"))
                if failures:
                    return failures
        return []

    @property
    def _is_folder(self) -> bool:
        return bool(self.remote.fs.protocol == "local")

    def _download(self, oid: str, draft: Path) -> None:
        self.files.get_file(self.remote.oid_to_path(oid), str(draft))
        _require_md5(draft, oid)
        _put_in_place(draft, Path(self.cache.oid_to_path(oid)))

    def _upload(self, oid: str, draft: Path) -> None:
        source, target = Path(self.cache.oid_to_path(oid)), self.remote.oid_to_path(oid)
        if md5_of(source) != oid.removesuffix(".dir"):
            source.unlink(missing_ok=True)
            raise DamagedCache("the cache held something else under this name, which is removed")
        if self._is_folder:
            shutil.copyfile(source, draft)
            _put_in_place(draft, Path(target))
        else:
            self.files.put_file(str(source), target)
        self._confirm(oid, source.stat().st_size, draft)

    def _confirm(self, oid: str, size_bytes: int, draft: Path) -> None:
        self.files.invalidate_cache()
        found = self.files.info(self.remote.oid_to_path(oid))
        if found["size"] != size_bytes:
            raise WrongContent(f"{found['size']} bytes instead of {size_bytes}")
        if _etag(found) != oid.removesuffix(".dir"):  # No such tag, several parts or encryption: read it back.
            self.files.get_file(self.remote.oid_to_path(oid), str(draft))
            _require_md5(draft, oid)

    def _is_there(self, oid: str, found: Mapping[str, Any] | None, tags_are_md5: bool) -> bool:
        """Whether the remote has an object of that size and, where its ETags are MD5s, of that content."""
        if found is None or found["size"] != Path(self.cache.oid_to_path(oid)).stat().st_size:
            return False
        return not tags_are_md5 or _etag(found) in ("", oid.removesuffix(".dir"))

    def _known(self, oids: list[str]) -> dict[str, Mapping[str, Any]]:
        """What the remote says of those objects that it has: size, and perhaps an ETag."""
        paths = {self.remote.oid_to_path(oid): oid for oid in oids}
        if len(oids) >= LIST_FROM and not self._is_folder:
            listed = self.files.find(self.remote.path, detail=True)
            return {paths[path]: found for path, found in listed.items() if path in paths}
        with suppress(FileNotFoundError):
            self.files.info(next(iter(paths)))  # A remote that does not answer is noticed once, not for every object.
        answers = self.remote.fs.info(list(paths), return_exceptions=True)
        found = {}
        for oid, answer in zip(paths.values(), answers, strict=True):
            if isinstance(answer, FileNotFoundError):
                continue
            if isinstance(answer, Exception):
                raise answer
            found[oid] = answer
        return found


@contextmanager
def _draft_folder(parent: Path) -> Iterator[Path]:
    """Where objects are written before they have their name; those of processes that were killed go."""
    host = socket.gethostname()
    drafts = parent / "drafts"
    for left in drafts.glob(f"{host}-*"):
        if not _is_alive(int(left.name.rpartition("-")[2])):
            shutil.rmtree(left, ignore_errors=True)
    own = drafts / f"{host}-{os.getpid()}"
    own.mkdir(parents=True, exist_ok=True)
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)
        with suppress(OSError):
            drafts.rmdir()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # Somebody else's.
    return True


def _for_each(oids: list[str], move: Callable[[str], None], end: tuple[Kind, ...] = ("failed",)) -> list[Failure]:
    """What failed. After a failure of a kind in `end`, no further object is begun."""
    stop = threading.Event()

    def one(oid: str) -> Failure | None:
        if stop.is_set():
            return None
        failure = _attempt(oid, move, stop)
        if failure and failure.kind in end:
            stop.set()
        return failure

    with ThreadPoolExecutor(WORKERS) as pool:
        return [failure for failure in pool.map(one, oids) if failure]


def _attempt(oid: str, move: Callable[[str], None], stop: threading.Event) -> Failure | None:
    failure = Failure(oid, "failed", "not tried")
    for delay_s in (*RETRY_DELAYS_S, None):
        try:
            move(oid)
            return None
        except FileNotFoundError as error:
            return Failure(oid, "missing", words_of(error))
        except DamagedCache as error:
            return Failure(oid, "cache", str(error))
        except WrongContent as error:
            failure = Failure(oid, "wrong", str(error))
        except Exception as error:  # noqa: BLE001  Every library below has errors of its own; each is told.
            failure = Failure(oid, "failed", words_of(error))
            if _is_final(error):
                return failure
        if delay_s is None or stop.wait(delay_s):
            break
    return failure


def _is_final(error: Exception) -> bool:
    """Whether the next attempt would end in the same way: no key, a wrong one, a full disk, a refused request (501)."""
    final = isinstance(error, OSError) and error.errno in (errno.ENOSYS, errno.EACCES, errno.EPERM, errno.ENOSPC)
    return final or isinstance(error, PermissionError) or type(error).__name__.endswith("CredentialsError")


def words_of(error: BaseException) -> str:
    """Type and message of an error, with that of its cause: wrappers often say less than what they wrap."""
    words = f"{type(error).__name__}: {error}".strip()
    cause = error.__cause__ or error.__context__
    return words if cause is None or str(cause) in words else f"{words} ({type(cause).__name__}: {cause})"


def md5_of(path: Path) -> str:
    """MD5 of a file's content, DVC's name for it: finds damage, not forgery."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as reader:
        while chunk := reader.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _require_md5(path: Path, oid: str) -> None:
    if (got := md5_of(path)) != oid.removesuffix(".dir"):
        raise WrongContent(got)


def _put_in_place(draft: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(PermissionError):  # Some file systems have no modes.
        draft.chmod(0o444)
    draft.replace(target)


def _etag(found: Mapping[str, Any]) -> str:
    """The ETag where it looks like an MD5, else nothing."""
    tag = str(found.get("ETag", "")).strip('"')
    return tag if _PLAIN_ETAG.fullmatch(tag) else ""
