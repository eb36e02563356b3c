"""The release channel: where the training side publishes sealed bundles and inference hosts fetch them.

<channel>/bundles/<digest>/    a sealed bundle with its attestations
<channel>/probes/<digest>/     a probe set, by which hosts judge engines
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from data_contracts.base import Sha256
from serving.bundle import Bundle, open_bundle
from serving.probe_files import ProbeFolder, open_probe_set


class ReleaseChannel:
    """A channel in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def bundle_path(self, digest: Sha256) -> Path:
        """Where the bundle lies, whether it is there or not."""
        return self._root / "bundles" / digest

    def probe_path(self, digest: Sha256) -> Path:
        """Where the probe set lies, whether it is there or not."""
        return self._root / "probes" / digest

    def publish(self, bundle: Bundle) -> Path:
        """Put a copy of `bundle` into the channel, whole or not at all; nothing happens when it is there."""
        target = self.bundle_path(bundle.digest)
        _copy_whole(bundle.path, target)
        return open_bundle(target, bundle.digest).path

    def publish_probe_set(self, folder: ProbeFolder) -> Path:
        """Put a copy of a probe set into the channel, as `publish` does a bundle. It goes before its bundle."""
        target = self.probe_path(folder.digest)
        _copy_whole(folder.path, target)
        return open_probe_set(target, folder.digest).path


def _copy_whole(source: Path, target: Path) -> None:
    if target.is_dir():
        return
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copytree(source, partial)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
