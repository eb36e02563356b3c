"""Bring a release into the store by hand: the bundle, and its probe set where that can be found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from data_contracts.base import Sha256
from data_contracts.errors import BundleError, Problem
from data_contracts.probe import PROBES_DIR
from serving.bundle import open_bundle
from serving.store import ReleaseStore


@dataclass(frozen=True)
class Imported:
    """What is in the store now; `note` says what an operator should know, and is empty when all is there."""

    digest: Sha256
    note: str


def import_release(store: ReleaseStore, folder: Path, probe: Path | None = None) -> Imported:
    """Verify the bundle in `folder` and its probe set in `probe`, and copy both.

    Where none is named, the probe set is looked for as `../probes/<digest>` beside the folder of bundles: so it lies in
    a release channel and where a bundle was sealed. Raises BundleError, ReleaseError; then no bundle is added.
    """
    bundle = open_bundle(folder)
    wanted = bundle.manifest.probe_set
    if wanted is None:
        if probe is not None:
            action = "Leave --probe out."
            raise BundleError(Problem("probe set", "a bundle that names one", "a bundle that names none", action))
        note = "the bundle names no probe set: only FP32 ONNX Runtime will serve it"
        return Imported(store.add_bundle(folder, bundle.digest).digest, note)
    beside = folder.absolute().parents[1] / PROBES_DIR / wanted
    source = probe or (beside if beside.is_dir() else None)
    note = ""
    if source is not None:
        store.add_probe_set(source, wanted)
    elif not (store.probes / wanted).is_dir():
        note = f"no probe set {wanted[:12]} at {beside}: only FP32 ONNX Runtime will serve it; name it with --probe"
    return Imported(store.add_bundle(folder, bundle.digest).digest, note)
