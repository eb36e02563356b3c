"""Runs git and DVC, each in a process of its own with a clean configuration.

Whatever a user has set up for git, and whatever repository a folder happens to lie in, does not matter, and no identity
needs to be configured. Access passes through: AWS_* variables, SSH, GIT_ASKPASS, ~/.netrc. Messages are masked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from data_contracts.errors import DatasetRepoError, Problem

TIMEOUT_S = 6 * 3600
"""For one call. The first push of a large dataset takes long; what hangs must still end."""

_IDENTITY = ("-c", "user.name=passline", "-c", "user.email=passline@localhost", "-c", "commit.gpgsign=false")
_ACCESS = frozenset({"GIT_ASKPASS", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH"})
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")
_URL_USER = re.compile(r"(?<=://)[^/@\s]+@")
_LAST_LINES = 3


def run_git(repository: Path, *arguments: str) -> str:
    """The output of git in `repository`. Raises DatasetRepoError with what git said."""
    subject = masked("git " + " ".join(arguments)[:200])
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=repository, env=_environment(repository), capture_output=True, text=True,
            timeout=TIMEOUT_S, errors="replace",
        )  # fmt: skip
    except FileNotFoundError:
        problem = Problem("git", "an installed program", "none on the PATH", "Install git.")
        raise DatasetRepoError(problem) from None
    except subprocess.TimeoutExpired:
        raise _too_slow(subject) from None
    if done.returncode != 0:
        said = " | ".join((done.stderr or done.stdout).strip().splitlines()[-_LAST_LINES:])
        got = f"exit {done.returncode}: {masked(said)}"
        raise DatasetRepoError(Problem(f"{subject} in {repository}", "success", got, "See the message."))
    return done.stdout.rstrip("\n")


def commit_all(repository: Path, message: str) -> None:
    """Commit what changed, if anything did."""
    run_git(repository, "add", "--all")
    if run_git(repository, "status", "--porcelain"):
        run_git(repository, *_IDENTITY, "commit", "--quiet", "--no-verify", "--message", message)


def run_dvc(repository: Path, job: str, subject: str, **request: Any) -> dict[str, Any]:
    """The answer of a job of `tasks.datasets.dvc_process`. Raises DatasetRepoError about `subject` when it has none."""
    # -P: the folder that we work in is not looked at for modules.
    command = [sys.executable, "-P", "-W", "ignore", "-m", "tasks.datasets.dvc_process"]
    environment = _environment(repository) | {"DVC_SITE_CACHE_DIR": str(repository / ".dvc" / "tmp" / "site")}
    with (
        tempfile.TemporaryFile("w+") as told,
        tempfile.TemporaryFile("w+") as said,
        _request({"job": job} | request) as line,
    ):
        with subprocess.Popen(
            command, cwd=repository, env=environment, stdin=line, stdout=told, stderr=said
        ) as process:
            status = _await(process, subject)
        answer = _read_answer(told)
        if status != 0 or answer is None or "error" in answer:
            got = masked(answer["error"]) if answer and "error" in answer else f"exit {status}: {_last_lines(said)}"
            raise DatasetRepoError(Problem(subject, "success", got, advise(got)))
        return answer


def masked(text: str, environ: Mapping[str, str] | None = None) -> str:
    """`text` in one line, without user names and passwords of URLs and without the secrets of the environment.

    >>> masked("https://me:word@host/x: no s3cr3t-key", {"AWS_SECRET_ACCESS_KEY": "s3cr3t-key"})
    'https://***@host/x: no ***'
    """
    env = os.environ if environ is None else environ
    for name in _SECRETS:
        if len(env.get(name, "")) >= 4:
            text = text.replace(env[name], "***")
    return _URL_USER.sub("***@", " ".join(text.split()))


_ADVICE = {
    "NotDvcRepo": "Make it one with `dvc init`, or use `passline dataset add`.",
    "NoRemote": "Name the remote: `dvc remote add --default`.",
    "credential|Forbidden|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|PermissionError": (
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of a user of the remote; for a folder, mend owner and mode."
    ),
    "NoSuchBucket|bucket does not exist": "Correct the name of the bucket, or make it.",
    "NotImplemented|checksum|aws-chunked": (
        "The store does not know the checksums of new clients: set AWS_REQUEST_CHECKSUM_CALCULATION=when_required."
    ),
    "ENOSPC|No space|Disk quota": "Free some space, then retry: what was moved is kept.",
}


def advise(words: str) -> str:
    """What to do about a failure of DVC or a remote."""
    for pattern, action in _ADVICE.items():
        if re.search(pattern, words, re.IGNORECASE):
            return action
    return "Check the remote and the way to it, then retry: what was moved is kept."


def _environment(repository: Path) -> dict[str, str]:
    """For git and DVC: no user or system configuration, no telemetry, no prompts, no outer repository, no hooks.

    Whoever names a repository may use it, whoever owns its folder; nothing in it is run.
    """
    settings = {"safe.directory": str(repository), "core.hooksPath": os.devnull, "core.fsmonitor": "false"}
    ours = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": str(len(settings)),
        "DVC_NO_ANALYTICS": "1",
        "DO_NOT_TRACK": "1",
        "LC_ALL": "C.UTF-8",
    }
    for number, (key, value) in enumerate(settings.items()):
        ours |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    kept = {name for name in os.environ if name in _ACCESS or not name.startswith(("GIT_", "DVC_"))}
    return {name: os.environ[name] for name in kept} | ours


@contextmanager
def _request(request: Mapping[str, Any]) -> Iterator[IO[bytes]]:
    """A pipe with one line of JSON. It has an end only when this process has: DVC then ends, too."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as reader, os.fdopen(write_end, "wb") as writer:
        writer.write(json.dumps(request).encode() + b"\n")
        writer.flush()
        yield reader


def _await(process: subprocess.Popen[bytes], subject: str) -> int:
    try:
        return process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise _too_slow(subject) from None
    except BaseException:
        process.terminate()  # On Ctrl-C nobody waits for a transfer.
        raise


def _too_slow(subject: str) -> DatasetRepoError:
    return DatasetRepoError(Problem(subject, f"an end within {TIMEOUT_S} s", "none", "Check the remote, then retry."))


def _read_answer(told: IO[str]) -> dict[str, Any] | None:
    told.seek(0)
    text = told.read()
    try:
        answer = json.loads(text) if text else None
    except json.JSONDecodeError:
        return None
    return answer if isinstance(answer, dict) else None


def _last_lines(said: IO[str]) -> str:
    said.seek(0)
    return masked(" | ".join(said.read().strip().splitlines()[-_LAST_LINES:]))
