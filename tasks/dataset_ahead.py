"""Before a dataset is pinned: is the revision there, how large is it, and can its content be fetched?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from data_contracts.dataset import DatasetRef
from data_contracts.errors import PasslineError, Problem
from tasks.dataset_repo import resolve
from tasks.datasets.dataset_remote import Remote, default_remote_of
from tasks.datasets.dataset_revisions import is_url
from tasks.datasets.git_dvc import masked
from tasks.datasets.pinned_copy import PinnedCopy

ANSWER_S = 4.0
"""For one question to a store."""
NO_SUCH_BUCKET = 404


@dataclass(frozen=True)
class SourceFacts:
    """What is known of a dataset before it is fetched. The size is 0 while only its remote repository knows it."""

    size_bytes: int = 0
    problems: tuple[Problem | str, ...] = ()


def look_at_source(ref: DatasetRef, name: str, pinned_home: Path) -> SourceFacts:
    """Ask a repository of this machine for the revision, and its remote unless the content is here already.

    One at a URL would have to be cloned: it is asked when it is pinned, as the next step.
    """
    if is_url(ref.repository):
        return SourceFacts()
    if not Path(ref.repository).is_dir():
        got, action = f"{ref.repository}: no folder", "Check the path, or make it with `passline dataset add`."
        return SourceFacts(problems=(Problem("dataset.ref.repository", "a git + DVC repository", got, action),))
    try:
        pin = resolve(ref, name)
        is_here = PinnedCopy(pinned_home, pin).is_complete()
        remote = None if is_here else default_remote_of(Path(ref.repository) / ".dvc")
    except PasslineError as error:
        return SourceFacts(problems=error.problems)
    return SourceFacts(pin.size_bytes, tuple(check_remote(remote)) if remote else ())


def check_remote(remote: Remote) -> Iterator[Problem]:
    """A folder that can be read, or a store that answers and has the bucket; keys are tried when content is fetched.

    DVC's remotes of other kinds are left to the fetch too.
    """
    subject = f"data remote {remote}"
    if remote.is_folder:
        if not Path(remote.url).is_dir():
            yield Problem(
                subject, "a folder", "no such folder", "Mount it, or mend the remote with `dvc remote modify`."
            )
    elif remote.url.startswith("s3://"):
        yield from _check_bucket(subject, remote)


def _check_bucket(subject: str, remote: Remote) -> Iterator[Problem]:
    bucket = remote.url.removeprefix("s3://").partition("/")[0]
    store = remote.endpoint_url.rstrip("/") if remote.endpoint_url else "https://s3.amazonaws.com"
    try:
        answer = httpx.head(f"{store}/{bucket}", timeout=ANSWER_S)
    except httpx.HTTPError as error:
        action = "Check that the store runs and that this machine reaches it."
        yield Problem(subject, "an answer", masked(f"{type(error).__name__}: {error}"), action)
        return
    if answer.status_code == NO_SUCH_BUCKET:
        yield Problem(subject, f"the bucket {bucket!r}", "no such bucket", "Make it, or correct its name.")
    elif answer.is_server_error:
        yield Problem(subject, "an answer", f"HTTP {answer.status_code}", "Look at the store's own log.")
