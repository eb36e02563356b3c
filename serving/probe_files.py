"""A probe set on disk: like a bundle, nothing of it is used before every byte agrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from data_contracts.errors import BundleError, ImageError, Problem, raise_if_any
from data_contracts.probe import PROBE_FILE, ProbeSet
from serving.bundle import check_digest, check_file, read_json, walk_files
from serving.images import Image, ImageLimits, read_image

MAX_PROBE_BYTES = 2**26
PROBE_LIMITS = ImageLimits(max_bytes=2**30, max_pixels=2**28)
"""Probe pictures are verified files of a checked dataset, so only absurd sizes are refused."""


@dataclass(frozen=True)
class ProbeFolder:
    """A verified probe set. `path` is absolute."""

    path: Path
    probe: ProbeSet
    digest: str

    def images(self) -> Iterator[Image]:
        """The pictures in order, RGB uint8 (height, width, 3), one at a time in memory. Raises BundleError."""
        for picture in self.probe.pictures:
            try:
                yield read_image(self.path / picture.file, PROBE_LIMITS)
            except ImageError as error:
                raise BundleError(*error.problems) from error


def open_probe_set(path: Path, expected_digest: str | None = None) -> ProbeFolder:
    """Verify the probe set in the folder `path`, every file of it; nothing else may lie there. Raises BundleError."""
    if path.is_symlink() or not path.is_dir():
        raise BundleError(Problem(str(path), f"a folder with {PROBE_FILE}", "no folder", "Fetch the probe set again."))
    probe = read_json(path, PROBE_FILE, ProbeSet, MAX_PROBE_BYTES)
    digest = probe.digest
    problems = check_digest(path, digest, expected_digest, PROBE_FILE)
    found, unfit = walk_files(path)
    listed = {picture.file: picture.entry for picture in probe.pictures}
    problems += unfit + [_problem(name, "only listed files", "another one") for name in found - {PROBE_FILE, *listed}]
    for name, entry in sorted(listed.items()):
        missing = name not in found
        problems += [_problem(name, "a listed file", "nothing")] if missing else check_file(path / name, name, entry)
    raise_if_any(BundleError, problems)
    return ProbeFolder(path.absolute(), probe, digest)


def _problem(name: str, expected: str, got: str) -> Problem:
    return Problem(f"probe set: {name}", expected, got, "Fetch the probe set again.")
