"""Register a sealed bundle that passed its gates."""

from __future__ import annotations

from pathlib import Path

from prefect import task

from data_contracts.errors import Problem, RegistryError
from serving.bundle import open_bundle
from serving.probe_files import open_probe_set
from tasks.evaluation.evaluation_result import EvaluationResult, flat_metrics
from tasks.gates import GateReport
from tasks.gating.remembered import REMEMBERED, Remembered
from tasks.registry import RegisteredVersion, Registry
from tasks.seal import add_attestation

REJECTED_FOLDER = "rejected-bundle"
"""Where a run keeps a bundle that was refused: not the place from which versions are made."""


def attest_results(bundle_path: Path, evaluation: EvaluationResult, report: GateReport) -> tuple[Path, Path]:
    """Attach what was measured and what was decided to the bundle; its digest stays."""
    return (
        add_attestation(bundle_path, "measurements", evaluation.model_dump(mode="json")),
        add_attestation(bundle_path, "gates", report.model_dump(mode="json")),
    )


def register(
    registry: Registry,
    bundle_path: Path,
    evaluation: EvaluationResult,
    report: GateReport,
    probe_path: Path | None = None,
) -> RegisteredVersion:
    """Make the bundle, with the probe set that it names, a version of its model and point `candidate` to it.

    Raises RegistryError for a bundle that was refused, was measured under another digest, or was not tracked.
    """
    bundle = open_bundle(bundle_path, evaluation.digest)
    manifest = bundle.manifest
    run_id = manifest.provenance.mlflow_run_id
    if not report.accepted or report.digest != bundle.digest:
        refused = "; ".join(check.words for check in report.refusals) or f"a report about {report.digest}"
        raise RegistryError(
            Problem(f"bundle {bundle.digest}", "an accepted gate report", refused, "See the gate report.")
        )
    if registry.run_status(run_id) != "FINISHED":
        raise RegistryError(Problem(f"MLflow run {run_id}", "FINISHED", registry.run_status(run_id), "Train again."))
    if manifest.probe_set is not None and probe_path is not None:
        open_probe_set(probe_path, manifest.probe_set)
    elif manifest.probe_set is not None:
        expected = f"its probe set {manifest.probe_set[:12]}"
        raise RegistryError(Problem(f"bundle {bundle.digest[:12]}", expected, "none", "Register them together."))
    attest_results(bundle_path, evaluation, report)
    registry.log_metrics(run_id, flat_metrics(evaluation))
    version = registry.register_bundle(manifest.name, run_id, bundle_path, bundle.digest, manifest.version, probe_path)
    registry.set_alias(version.name, "candidate", version.number)
    return version


@task(name="attest the decision")
def attest_decision(bundle_path: Path, evaluation: EvaluationResult, report: GateReport, handed_on: Remembered) -> None:
    """Attach measurement, decision, and what earlier champions found, to a bundle: to a rejected one as well."""
    attest_results(bundle_path, evaluation, report)
    add_attestation(bundle_path, REMEMBERED, handed_on.model_dump(mode="json"))


@task(name="keep the rejected candidate", retries=2, retry_delay_seconds=5)
def keep_rejected(mlflow_url: str, run_id: str, bundle_path: Path) -> None:
    """Put a rejected bundle to its training's records, for inspection. It becomes no version and gets no alias."""
    Registry(mlflow_url).log_folder(run_id, bundle_path, REJECTED_FOLDER)


@task(retries=2, retry_delay_seconds=5)
def register_bundle(
    mlflow_url: str, bundle_path: Path, evaluation: EvaluationResult, report: GateReport, probe_path: Path
) -> RegisteredVersion:
    """Register an accepted bundle. Doing it twice makes one version."""
    return register(Registry(mlflow_url), bundle_path, evaluation, report, probe_path)
