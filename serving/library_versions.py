"""Which versions of libraries an environment holds."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version


def library_versions(names: Iterable[str]) -> dict[str, str | None]:
    """The version of each distribution, None for one that is not installed."""
    return {name: _version(name) for name in names}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
