"""Where the content of a dataset repository is kept: a folder, or a bucket of an S3-compatible store.

Everybody who reads the repository reads its configuration: no key is ever stored there. Keys come from the environment
(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or from ~/.aws.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from urllib.parse import urlsplit

from data_contracts.errors import DatasetRepoError, Problem, raise_if_any
from tasks.datasets.git_dvc import masked

STORE = "store"
"""The name of the remote in the repositories that we make."""
REMOTES_DIR = ".remotes"

_CONFIG = """\
[core]
    analytics = false
    check_update = false
    autostage = true
    remote = {store}
[cache]
    type = "reflink,copy"
['remote "{store}"']
    url = {url}
"""
_SCP_LIKE = re.compile(r"[^/\\]+@[^/\\:]+:")
_SECTION = re.compile(r"""^'?remote "(?P<name>.+)"'?$""")


@dataclass(frozen=True)
class Remote:
    """A remote as a DVC configuration says it: the URL (a folder may be relative to `.dvc`), and an S3 endpoint."""

    url: str
    endpoint_url: str | None = None

    def __str__(self) -> str:
        return masked(self.url if self.endpoint_url is None else f"{self.url} at {self.endpoint_url}")

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, of this machine or mounted."""
        return "://" not in self.url and not _SCP_LIKE.match(self.url)

    @property
    def is_relative(self) -> bool:
        """Whether it is a folder that is looked up from the repository."""
        return self.is_folder and not Path(self.url).is_absolute() and not PureWindowsPath(self.url).drive

    def located(self, dvc_folder: Path) -> Remote:
        """The same with a folder as an absolute path; `dvc_folder` is the .dvc folder whose configuration says it."""
        return replace(self, url=str((dvc_folder / self.url).resolve())) if self.is_folder else self


def default_remote(name: str) -> Remote:
    """The folder beside a new repository; relative, so that the datasets home can be moved."""
    return Remote(f"../../{REMOTES_DIR}/{name}")


def parse_remote(url: str, endpoint_url: str | None = None) -> Remote:
    """A remote as a person names it: a folder, or s3://bucket/prefix with the endpoint of a store that is not AWS.

    >>> str(parse_remote("s3://plates/nightly/", "http://store:9000"))
    's3://plates/nightly at http://store:9000'

    Raises DatasetRepoError for anything else, and for one that holds a key.
    """
    raise_if_any(DatasetRepoError, _problems(url, endpoint_url))
    if "://" in url:
        return Remote(url.rstrip("/"), endpoint_url)
    return Remote(str(Path(url).expanduser().resolve()))


def _problems(url: str, endpoint_url: str | None) -> Iterator[Problem]:
    for name, text in ("remote", url), ("endpoint URL", endpoint_url or ""):
        if urlsplit(text).username is not None or re.search(r"[?&].*(key|secret|token)=", text, re.IGNORECASE):
            action = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment instead."
            yield Problem(name, "no user name, password or key in it", masked(text), action)
        if re.search(r"[\x00-\x1f'\"#;]", text):
            yield Problem(name, "no quotes, #, ; or control characters", repr(text), "Use another name.")
    parts = urlsplit(url)
    if "://" in url and (parts.scheme != "s3" or not parts.hostname):
        action = "Other kinds of DVC remotes are set up with `dvc remote add` in the repository."
        yield Problem("remote", "a folder or s3://bucket/prefix", masked(url), action)
    if not url.strip():
        yield Problem("remote", "a folder or s3://bucket/prefix", repr(url), "Name one, or leave the option out.")
    if endpoint_url is not None:
        if urlsplit(endpoint_url).scheme not in ("http", "https") or not urlsplit(endpoint_url).hostname:
            yield Problem("endpoint URL", "http://host:port or https://host", masked(endpoint_url), "Correct it.")
        if not url.startswith("s3://"):
            yield Problem("endpoint URL", "a remote s3://bucket/prefix to go with it", masked(url), "Name the bucket.")


def config_text(remote: Remote) -> str:
    """The configuration of a new dataset repository."""
    text = _CONFIG.format(store=STORE, url=remote.url)
    return text if remote.endpoint_url is None else f"{text}    endpointurl = {remote.endpoint_url}\n"


def read_remotes(dvc_folder: Path) -> dict[str, Remote]:
    """The remotes of a repository by name; what config.local says counts over config."""
    return {
        match["name"]: Remote(_unquoted(fields["url"]), _unquoted(fields.get("endpointurl")) or None)
        for section, fields in _read(dvc_folder).items()
        if (match := _SECTION.match(section)) and "url" in fields
    }


def default_name(dvc_folder: Path) -> str | None:
    """The name of the remote that is used where none is named."""
    return _unquoted(_read(dvc_folder).get("core", "remote", fallback=None)) or None


def default_remote_of(dvc_folder: Path) -> Remote | None:
    """The remote that is used where none is named, a folder as an absolute path."""
    remote = read_remotes(dvc_folder).get(default_name(dvc_folder) or "")
    return remote and remote.located(dvc_folder)


def _unquoted(value: str | None) -> str:
    return (value or "").strip().strip("\"'")


def _read(dvc_folder: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read([dvc_folder / "config", dvc_folder / "config.local"], "utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        problem = Problem(str(dvc_folder / "config"), "a DVC configuration", str(error), "Correct the file.")
        raise DatasetRepoError(problem) from None
    return parser
