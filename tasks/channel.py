"""The release channel: where the training side publishes sealed bundles and inference hosts fetch them.

<channel>/bundles/<digest>/    a sealed bundle with its attestations
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from data_contracts.base import Sha256
from serving.bundle import Bundle, open_bundle


class ReleaseChannel:
    """A channel in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def bundle_path(self, digest: Sha256) -> Path:
        """Where the bundle lies, whether it is there or not."""
        return self._root / "bundles" / digest

    def publish(self, bundle: Bundle) -> Path:
        """Put a copy of `bundle` into the channel, whole or not at all; nothing happens when it is there."""
        target = self.bundle_path(bundle.digest)
        if target.is_dir():
            return open_bundle(target, bundle.digest).path
        partial = target.with_name(f".{bundle.digest}.{uuid.uuid4().hex[:8]}")
        partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copytree(bundle.path, partial)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return open_bundle(target, bundle.digest).path
