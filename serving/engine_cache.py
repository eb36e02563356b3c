"""Engines that were built on this host: `<store>/engines/<key>/`, each for one model on one GPU with its libraries.

    <key>/key.json           what the engine was built for; written last, so a folder without it is not whole
    <key>/*                  engine and profile, as TensorRT's provider writes them
    timing-<key>/            what TensorRT measured on this GPU; the next model of the same shape builds faster with it

Nothing here leaves the host, and nothing is lost with it: it is built again.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from data_contracts.base import Contract, Sha256, canonical_json, sha256_of
from data_contracts.bundle import Precision
from serving.atomic import read_capped, write_atomically

KEY_FILE = "key.json"
DIGITS = 16


class BuildHost(Contract):
    """What makes an engine useless elsewhere, or after an upgrade."""

    onnxruntime: str
    tensorrt: str
    driver: str
    gpu: str
    capability: str


class EngineKey(Contract):
    """For what an engine was built. Any other value is another engine."""

    bundle: str = ""
    model: Sha256
    precision: Precision
    shapes: str
    workspace_bytes: int | None
    host: BuildHost

    @property
    def folder_name(self) -> str:
        """Readable at its start, exact at its end."""
        whose = (self.bundle or self.model)[:12]
        return f"{whose}-{self.precision}-{sha256_of(canonical_json(self.model_dump(mode='json')))[:DIGITS]}"


@dataclass(frozen=True)
class EngineFolder:
    """Where one engine lies."""

    cache: Path
    key: EngineKey

    @property
    def path(self) -> Path:
        """The engine's own folder."""
        return self.cache / self.key.folder_name

    @property
    def timing(self) -> Path:
        """What was measured while engines of any model were built on this GPU."""
        return self.cache / f"timing-{sha256_of(canonical_json(self.key.host.model_dump(mode='json')))[:DIGITS]}"

    @property
    def is_whole(self) -> bool:
        """Whether an engine was built here to its end, for this key."""
        try:
            return EngineKey.model_validate_json(read_capped(self.path / KEY_FILE)) == self.key
        except (OSError, ValidationError):
            return False

    def prepare(self) -> None:
        """Make the folders; what an interrupted build left is thrown away."""
        if not self.is_whole:
            self.discard()
        for folder in (self.path, self.timing):
            folder.mkdir(parents=True, exist_ok=True)

    def finish(self) -> None:
        """Mark the engine as whole."""
        write_atomically(self.path / KEY_FILE, self.key.model_dump_json(indent=2) + "\n")

    def discard(self) -> None:
        """Throw the engine away, and the measurements that it was built with."""
        for folder in (self.path, self.timing):
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time builds this engine; the others wait and find it. The lock ends with its holder."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / f"{self.key.folder_name}.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
