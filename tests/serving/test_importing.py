"""A release brought into the store by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import builders
from data_contracts.errors import BundleError
from deployments.cli import app
from serving.importing import import_release
from serving.store import ReleaseStore


@pytest.fixture
def store(tmp_path: Path) -> ReleaseStore:
    made = ReleaseStore(tmp_path / "store")
    made.prepare()
    return made


def test_a_probe_set_beside_the_bundles_comes_along(store: ReleaseStore, tmp_path: Path) -> None:
    bundle, probe = builders.probed_bundle(tmp_path / "channel")
    imported = import_release(store, bundle)
    assert (imported.digest, imported.note) == (bundle.name, "")
    assert store.bundle(bundle.name).manifest.probe_set == store.probe_set(probe.name).digest


def test_one_that_lies_elsewhere_is_named(store: ReleaseStore, tmp_path: Path) -> None:
    bundle, probe = builders.probed_bundle(tmp_path / "channel")
    probe = probe.rename(tmp_path / "elsewhere")
    missing = import_release(store, bundle)
    assert "only FP32 ONNX Runtime" in missing.note
    assert "--probe" in missing.note
    assert import_release(store, bundle, probe).note == ""
    assert import_release(store, bundle).note == "", "it is in the store by now"


def test_another_ones_probe_set_is_refused_and_nothing_is_added(store: ReleaseStore, tmp_path: Path) -> None:
    bundle, _ = builders.probed_bundle(tmp_path / "channel")
    other = builders.make_probe_set(tmp_path / "other", model=builders.colour_stub(gain=0.5))
    with pytest.raises(BundleError):
        import_release(store, bundle, other)
    assert [*store.releases.iterdir(), *store.probes.iterdir()] == []


def test_a_bundle_without_one_is_told(store: ReleaseStore, tmp_path: Path) -> None:
    bundle = builders.make_bundle(tmp_path / "bundles")
    assert "names no probe set" in import_release(store, bundle).note
    with pytest.raises(BundleError, match="a bundle that names none"):
        import_release(store, bundle, tmp_path)


def test_the_command_prints_the_digest_alone_and_notes_beside(
    store: ReleaseStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, probe = builders.probed_bundle(tmp_path / "channel")
    probe = probe.rename(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PASSLINE_STORE", str(store.root))
    plain = CliRunner().invoke(app, ["release", "import", str(bundle)])
    assert (plain.exit_code, plain.stdout) == (0, f"{bundle.name}\n")
    assert "--probe" in plain.stderr
    named = CliRunner().invoke(app, ["release", "import", str(bundle), "--probe", str(probe)])
    assert (named.exit_code, named.stdout, named.stderr) == (0, f"{bundle.name}\n", "")
    assert store.probe_set(store.bundle(bundle.name).manifest.probe_set or "").digest
