"""What code and which libraries made something."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

LIBRARIES = ("ultralytics", "torch", "numpy", "onnx", "onnxruntime", "onnxruntime-gpu", "opencv-python-headless", "dvc")
"""The libraries whose version can change a model; those that are not installed are left out."""


@dataclass(frozen=True)
class CodeRevision:
    """`commit` is a git commit, or `package-<version>` where the code does not come from a git checkout."""

    commit: str
    dirty: bool


def code_revision(project: Path | None = None) -> CodeRevision:
    """Revision of the project's code; `project` is the folder to ask, by default the one that this file lies in."""
    folder = project or Path(__file__).resolve().parent.parent
    root = _git(folder, "rev-parse", "--show-toplevel")
    if root is None or Path(root).resolve() != folder.resolve():
        return CodeRevision(f"package-{_version('passline') or 'unknown'}", dirty=False)
    commit = _git(folder, "rev-parse", "HEAD")
    return CodeRevision(commit or "no-commit", dirty=bool(_git(folder, "status", "--porcelain")) or commit is None)


def library_versions() -> dict[str, str]:
    """Versions of Python, of Passline and of the libraries that shape a model."""
    found = {name: version for name in ("passline", *LIBRARIES) if (version := _version(name)) is not None}
    return {"python": platform.python_version(), **found}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
