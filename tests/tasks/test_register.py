from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from builders import make_bundle, make_probe_set, plate, probed_bundle
from data_contracts.errors import BundleError, RegistryError
from serving.bundle import open_bundle
from tasks import register as registering
from tasks.gates import Evidence, GateReport, decide
from tasks.gating.remembered import FoundDefects, Remembered, read_remembered
from tasks.promote import attested_report
from tasks.register import attest_decision, keep_rejected, register
from tasks.registry import RegisteredVersion, Registry
from training_fakes import FakeRegistry, evaluation, gate_policy, parity


class Models(FakeRegistry):
    """A fake with the part that keeps versions."""

    def __init__(self, status: str = "FINISHED") -> None:
        super().__init__()
        self.runs["none"] = status  # the run id in the provenance of built bundles
        self.made: list[RegisteredVersion] = []
        self.alias: tuple[str, str, int] | None = None
        self.metrics: Mapping[str, float] = {}
        self.probe_set: Path | None = None

    def log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int = 0) -> None:
        self.metrics = metrics

    def register_bundle(
        self, name: str, run_id: str, bundle: Path, digest: str, label: str, probe_set: Path | None = None
    ) -> RegisteredVersion:
        self.probe_set = probe_set
        self.made.append(RegisteredVersion(name, 1, digest, label, run_id))
        return self.made[-1]

    def set_alias(self, name: str, alias: str, number: int) -> None:
        self.alias = (name, alias, number)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path)


def report_about(digest: str, map50: float = 0.9) -> tuple:
    result = evaluation(digest=digest, map50=map50)
    return result, decide(Evidence(candidate=result, parity=parity()), gate_policy())


def test_an_accepted_bundle_becomes_the_candidate_with_its_evidence(bundle: Path):
    registry = Models()
    result, report = report_about(bundle.name)
    version = register(registry, bundle, result, report)  # type: ignore[arg-type]
    assert registry.alias == ("plates", "candidate", 1)
    assert version.digest == bundle.name
    assert registry.metrics["test/map50"] == 0.9
    written = json.loads((bundle / "attestations" / "gates.json").read_text())
    assert GateReport.model_validate(written["statement"]) == report
    assert (bundle / "attestations" / "measurements.json").is_file()
    assert open_bundle(bundle).digest == bundle.name


@pytest.mark.parametrize("map50", [0.9, 0.5], ids=["accepted", "rejected"])
def test_every_decision_is_attested_on_the_sealed_digest_a_rejection_too(bundle: Path, map50: float):
    result, report = report_about(bundle.name, map50)
    handed_on = Remembered(champions=(FoundDefects(champion="e" * 64, defects=("a" * 16,)),))
    attest_decision.fn(bundle, result, report, handed_on)
    sealed = open_bundle(bundle, bundle.name)
    assert read_remembered(bundle) == handed_on
    assert attested_report(sealed) == report
    assert attested_report(sealed).accepted == (map50 == 0.9)
    written = [json.loads(file.read_text()) for file in (bundle / "attestations").iterdir()]
    assert {one["kind"] for one in written} == {"gates", "measurements", "remembered"}
    assert {one["digest"] for one in written} == {bundle.name}


def test_a_rejected_bundle_is_kept_where_no_version_is_made_from(bundle: Path, monkeypatch: pytest.MonkeyPatch):
    kept: list[tuple[str, Path, str]] = []

    class Records:
        def __init__(self, url: str) -> None:
            self.log_folder = lambda *folder: kept.append(folder)

    monkeypatch.setattr(registering, "Registry", Records)
    keep_rejected.fn("http://127.0.0.1:1", "run-1", bundle)
    assert kept == [("run-1", bundle, "rejected-bundle")]


def test_the_probe_set_that_a_bundle_names_goes_with_it(tmp_path: Path):
    bundle, probe = probed_bundle(tmp_path)
    registry = Models()
    register(registry, bundle, *report_about(bundle.name), probe)  # type: ignore[arg-type]
    assert registry.probe_set == probe


@pytest.mark.parametrize("which", ["none", "another"])
def test_without_its_own_probe_set_a_bundle_is_not_registered(tmp_path: Path, which: str):
    bundle, _ = probed_bundle(tmp_path)
    other = make_probe_set(tmp_path / "other", [plate()])
    registry, given = Models(), {"none": None, "another": other}[which]
    with pytest.raises((RegistryError, BundleError), match=r"probe(_| |\.json)"):
        register(registry, bundle, *report_about(bundle.name), given)  # type: ignore[arg-type]
    assert registry.made == []


def test_a_refused_bundle_is_not_registered_and_the_reason_is_told(bundle: Path):
    registry = Models()
    with pytest.raises(RegistryError, match=r"map50: 0.5, at least 0.8"):
        register(registry, bundle, *report_about(bundle.name, map50=0.5))  # type: ignore[arg-type]
    assert registry.made == []


def test_a_report_about_another_bundle_is_refused(bundle: Path):
    result, _ = report_about(bundle.name)
    _, other = report_about("f" * 64)
    with pytest.raises(RegistryError, match="a report about ffff"):
        register(Models(), bundle, result, other)  # type: ignore[arg-type]
    with pytest.raises(BundleError, match="ffff"):
        register(Models(), bundle, *report_about("f" * 64))  # type: ignore[arg-type]


@pytest.mark.parametrize("status", ["RUNNING", "FAILED"])
def test_an_untracked_training_can_not_be_registered(bundle: Path, status: str):
    registry = Models(status)
    with pytest.raises(RegistryError, match=f"expected FINISHED, got {status}"):
        register(registry, bundle, *report_about(bundle.name))  # type: ignore[arg-type]
    assert registry.made == []


def test_a_version_with_an_alias_is_not_deleted():
    class Aliased(Registry):
        def __init__(self) -> None:
            self.url = "http://127.0.0.1:1"

        def aliases(self, name: str) -> dict[str, RegisteredVersion]:
            return {"champion": RegisteredVersion(name, 2, "c" * 64, "1", "run")}

    with pytest.raises(RegistryError, match=r"plates version 2: expected no alias.*champion"):
        Aliased().delete_version("plates", 2)
