"""A release bundle on disk: nothing of it is used before every byte agrees with its manifest.

`open_bundle` collects all violations and names the file or field of each. Only `attestations/*.json` may be there
without being listed: what is learned about a bundle after sealing must not change it.
"""

from __future__ import annotations

import hashlib
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from data_contracts.base import Contract
from data_contracts.bundle import (
    ATTESTATIONS_DIR,
    GOLDEN_FILE,
    MANIFEST_FILE,
    Attestation,
    BundleManifest,
    FileEntry,
    GoldenSet,
)
from data_contracts.errors import BundleError, Problem, raise_if_any

MAX_FILE_BYTES = 2**30
MAX_MANIFEST_BYTES = 2**20
_DIGEST_NAME = re.compile(r"[0-9a-f]{64}")
_FETCH_AGAIN = "Fetch or seal the bundle again."

Model = TypeVar("Model", bound=Contract)


@dataclass(frozen=True)
class Bundle:
    """A verified bundle. `path` is absolute."""

    path: Path
    manifest: BundleManifest
    digest: str
    golden: GoldenSet


def open_bundle(path: Path, expected_digest: str | None = None) -> Bundle:
    """Verify the bundle in the folder `path`, every file of it.

    A folder named by 64 hexadecimal digits must hold the bundle of that digest. Raises BundleError.
    """
    if path.is_symlink() or not path.is_dir():
        raise BundleError(Problem(str(path), "a bundle folder", "no folder", "Name the folder that holds bundle.json."))
    manifest = _read_manifest(path)
    problems = check_digest(path, manifest.digest, expected_digest)
    files, unfit = walk_files(path)
    problems += unfit + _check_files(path, files, manifest)
    problems += _check_attestations(path, files, manifest.digest)
    raise_if_any(BundleError, problems)
    golden = _read_golden(path, manifest)
    return Bundle(path.absolute(), manifest, manifest.digest, golden)


def hash_file(path: Path) -> FileEntry:
    """SHA-256 and size of one file, read in pieces."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return FileEntry(sha256=sha256, size_bytes=file.tell())


def write_manifest(folder: Path, manifest: BundleManifest) -> str:
    """Write bundle.json into the folder; the digest that the bundle has from now on."""
    (folder / MANIFEST_FILE).write_text(manifest.to_json(), encoding="utf-8")
    return manifest.digest


def problems_of(subject: str, error: ValidationError, action: str) -> list[Problem]:
    """One problem per field that a model refused."""
    return [
        Problem(
            f"{subject}: {'.'.join(map(str, item['loc'])) or 'content'}", item["msg"], _short(item["input"]), action
        )
        for item in error.errors()
    ]


def _read_manifest(path: Path) -> BundleManifest:
    return read_json(path, MANIFEST_FILE, BundleManifest)


def read_json(path: Path, name: str, model: type[Model], max_bytes: int = MAX_MANIFEST_BYTES) -> Model:
    """One checked JSON file of a folder of ours. Raises BundleError."""
    file = path / name
    try:
        info = file.lstat()
    except OSError:
        raise BundleError(Problem(name, "a file", "nothing", _FETCH_AGAIN)) from None
    if not stat.S_ISREG(info.st_mode) or info.st_size > max_bytes:
        got = f"{info.st_size} bytes" if stat.S_ISREG(info.st_mode) else "something else"
        raise BundleError(Problem(name, f"a regular file of at most {max_bytes} bytes", got, _FETCH_AGAIN))
    try:
        return model.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise BundleError(*problems_of(name, error, _FETCH_AGAIN)) from None


def check_digest(path: Path, digest: str, expected: str | None, name: str = MANIFEST_FILE) -> list[Problem]:
    """The digest of the content must be the one that the caller and the folder's name expect."""
    wanted = {"the caller": expected, "the folder's name": path.name if _DIGEST_NAME.fullmatch(path.name) else None}
    return [
        Problem(f"{name}: digest", f"{want} by {who}", digest, _FETCH_AGAIN)
        for who, want in wanted.items()
        if want is not None and want != digest
    ]


def walk_files(path: Path) -> tuple[set[str], list[Problem]]:
    """Names of all regular files below the folder, and what is there that is neither file nor folder."""
    files, problems = set(), []
    for entry in sorted(path.rglob("*")):
        name, mode = entry.relative_to(path).as_posix(), entry.lstat().st_mode
        if stat.S_ISREG(mode):
            files.add(name)
        elif not stat.S_ISDIR(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "a special file"
            problems.append(Problem(name, "a regular file", kind, _FETCH_AGAIN))
    return files, problems


def _check_files(path: Path, found: set[str], manifest: BundleManifest) -> list[Problem]:
    allowed = {name for name in found if _is_attestation(name)} | {MANIFEST_FILE}
    problems = [
        Problem(f"{MANIFEST_FILE}: files", "no manifest and no attestations", name, "Seal the bundle again.")
        for name in sorted(manifest.files)
        if name == MANIFEST_FILE or name.startswith(f"{ATTESTATIONS_DIR}/")
    ]
    problems += [
        Problem(name, "only files that the manifest lists", "a file that it does not list", _FETCH_AGAIN)
        for name in sorted(found - allowed - manifest.files.keys())
    ]
    for name, entry in sorted(manifest.files.items()):
        if name not in found:
            problems.append(Problem(name, "a file that the manifest lists", "nothing", _FETCH_AGAIN))
        else:
            problems += check_file(path / name, name, entry)
    return problems


def check_file(file: Path, name: str, entry: FileEntry) -> list[Problem]:
    """Size and SHA-256 of one file that is there."""
    size = file.stat().st_size
    if size > MAX_FILE_BYTES:
        return [Problem(name, f"at most {MAX_FILE_BYTES} bytes", f"{size} bytes", "Use a smaller model.")]
    if size != entry.size_bytes:
        return [Problem(name, f"{entry.size_bytes} bytes", f"{size} bytes", _FETCH_AGAIN)]
    sha256 = hash_file(file).sha256
    if sha256 != entry.sha256:
        return [Problem(name, f"SHA-256 {entry.sha256}", sha256, _FETCH_AGAIN)]
    return []


def _is_attestation(name: str) -> bool:
    folder, _, file = name.partition("/")
    return folder == ATTESTATIONS_DIR and file.endswith(".json") and "/" not in file


def _check_attestations(path: Path, found: set[str], digest: str) -> list[Problem]:
    problems: list[Problem] = []
    for name in sorted(filter(_is_attestation, found)):
        try:
            attestation = read_json(path, name, Attestation)
        except BundleError as error:
            problems += [problem for problem in error.problems if isinstance(problem, Problem)]
        else:
            if attestation.digest != digest:
                problems.append(Problem(f"{name}: digest", digest, attestation.digest, "Remove the attestation."))
    return problems


def _read_golden(path: Path, manifest: BundleManifest) -> GoldenSet:
    """golden.json, agreeing with the class list, the verdict rule's floor and the listed files."""
    golden = read_json(path, GOLDEN_FILE, GoldenSet)
    names = manifest.model.class_names
    problems = []
    for picture in golden.pictures:
        if picture.file not in manifest.files:
            problems.append(Problem(f"{GOLDEN_FILE}: file", "a file of this bundle", picture.file, _FETCH_AGAIN))
        for found in picture.detections:
            if names[found.class_id : found.class_id + 1] != (found.class_name,):
                got = f"{found.class_id} {found.class_name!r} in {picture.file}"
                problems.append(Problem(f"{GOLDEN_FILE}: class", f"one of {list(enumerate(names))}", got, _FETCH_AGAIN))
    raise_if_any(BundleError, problems)
    return golden


def _short(value: object) -> str:
    text = repr(value.model_dump() if isinstance(value, BaseModel) else value)
    return text if len(text) <= 80 else text[:77] + "..."
