from __future__ import annotations

import subprocess
from pathlib import Path

from tasks.provenance import code_revision, library_versions


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_checkout_gives_its_commit_and_whether_it_was_changed(tmp_path: Path):
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("a = 1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-qm", "first")
    clean = code_revision(tmp_path)
    assert (clean.commit, clean.dirty) == (git(tmp_path, "rev-parse", "HEAD"), False)
    (tmp_path / "code.py").write_text("a = 2\n")
    assert code_revision(tmp_path).dirty


def test_a_checkout_without_a_commit_is_dirty(tmp_path: Path):
    git(tmp_path, "init", "-q")
    revision = code_revision(tmp_path)
    assert (revision.commit, revision.dirty) == ("no-commit", True)


def test_installed_code_in_somebody_elses_checkout_gives_the_package_version(tmp_path: Path):
    git(tmp_path, "init", "-q")
    installed = tmp_path / ".venv" / "lib"
    installed.mkdir(parents=True)
    revision = code_revision(installed)
    assert revision.commit.startswith("package-")
    assert not revision.dirty


def test_versions_of_what_shapes_a_model():
    versions = library_versions()
    assert {"python", "numpy", "ultralytics", "torch", "onnx"} <= versions.keys()
    assert all(versions.values())
