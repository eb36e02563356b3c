"""The process that runs DVC: `python -m tasks.datasets.dvc_process` in a dataset repository, one job per process.

A line of JSON comes on standard input, an object of JSON goes to standard output; whatever DVC prints goes to standard
error. Importing DVC takes longer than most of its calls, and its git library, locks and settings are global: so a
process of its own, which ends with the one that started it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tasks.datasets.object_transfer import Failure, Store, words_of

CHECKSUM_VARIABLES = ("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION")
CHECKSUM_MODE = "when_required"
"""For stores other than AWS: by default, clients since 2025 send checksums that several of them refuse or store."""
READ_TIMEOUT_S = 30
Answer = dict[str, Any]


def main() -> None:
    """Do the job that standard input names."""
    request = json.loads(sys.stdin.readline())
    answer = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _ignore_user_git_config()
    try:
        told = JOBS[request.pop("job")](**request)
    except Exception as error:  # noqa: BLE001  The parent makes a message of it; a traceback helps nobody there.
        told = {"error": words_of(error)}
    with os.fdopen(answer, "w", encoding="utf-8") as pipe:
        json.dump(told, pipe)


def _end_with_parent() -> None:
    while os.read(0, 1024):  # The parent keeps its end open as long as it lives.
        pass
    os._exit(1)


def _ignore_user_git_config() -> None:
    # DVC's git library reads a user's configuration by itself, whatever the environment says.
    import pygit2

    for level in pygit2.enums.ConfigLevel.SYSTEM, pygit2.enums.ConfigLevel.XDG, pygit2.enums.ConfigLevel.GLOBAL:
        pygit2.settings.search_path[level] = ""
    pygit2.settings.owner_validation = False  # Whoever names a repository may use it: `git_dvc` says the same to git.


def init() -> Answer:
    """Make the git repository a DVC repository."""
    from dvc.repo import Repo

    Repo.init(".").close()
    return {}


def cache_dir() -> Answer:
    """Where objects are kept."""
    with _opened({}) as repo:
        return {"path": repo.cache.local.path}


def save(data: str) -> Answer:
    """Put the folder `data` into the cache: what a .dvc file says of it."""
    from dvc_data.hashfile.build import build
    from dvc_data.hashfile.transfer import transfer

    with _opened({}) as repo:
        cache = repo.cache.local
        staging, meta, tree = build(cache, data, _local_files(), "md5")
        transfer(staging, cache, {tree.hash_info}, shallow=False)
        return {"md5": tree.hash_info.value, "size": meta.size, "nfiles": meta.nfiles}


def push(listing: str, remote: str | None = None) -> Answer:
    """Send a folder's content to the remote: its list of files last, so that what is listed is there."""
    with _opened({}) as repo, _store(repo, remote, "push") as store:
        return _answer(store.push(_listed(repo, listing), listing))


def fetch(listing: str, remote: str | None, config: Mapping[str, Any]) -> Answer:
    """Bring a folder's content into the cache."""
    with _opened(config) as repo, _store(repo, remote, "fetch") as store:
        failures = store.fetch([listing]) or store.fetch(_listed(repo, listing))
    return _answer(failures)


@contextmanager
def _opened(config: Mapping[str, Any]) -> Iterator[Any]:
    from dvc.repo import Repo

    with Repo(".", config=dict(config)) as repo:
        yield repo


@contextmanager
def _store(repo: Any, remote: str | None, command: str) -> Iterator[Store]:
    name = remote or repo.config["core"].get("remote")
    settings = repo.config["remote"].get(name, {})
    if str(settings.get("url", "")).startswith("s3://"):
        settings.setdefault("read_timeout", READ_TIMEOUT_S)
        if settings.get("endpointurl") or {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} & os.environ.keys():
            for variable in CHECKSUM_VARIABLES:
                os.environ.setdefault(variable, CHECKSUM_MODE)
    yield Store(repo.cache.local, repo.cloud.get_remote_odb(name, command))


def _local_files() -> Any:
    from dvc.fs import LocalFileSystem

    return LocalFileSystem()


def _listed(repo: Any, listing: str) -> list[str]:
    text = Path(repo.cache.local.oid_to_path(listing)).read_text("utf-8")
    return list(dict.fromkeys(entry["md5"] for entry in json.loads(text)))


def _answer(failures: list[Failure]) -> Answer:
    return {"failures": [asdict(failure) for failure in failures]}


JOBS: Mapping[str, Callable[..., Answer]] = {
    "init": init, "cache_dir": cache_dir, "save": save, "push": push, "fetch": fetch,
}  # fmt: skip

if __name__ == "__main__":
    main()
