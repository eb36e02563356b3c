"""Outcome: today's data became a gated candidate, and champion if it is better. Runs on pool `training`, queue `train`.

pin -> validate -> split -> smoke run -> train -> export -> thresholds -> seal
    -> evaluate -> parity -> gates -> register -> promote
"""

from __future__ import annotations

from pathlib import Path

from prefect import State, flow
from prefect.states import Cancelled, Completed

from data_contracts.dataset import Split
from flows.promote import promote
from serving.images import ImageLimits
from tasks.backlog import catch_up_words
from tasks.champion import fetch_champion
from tasks.evaluate import evaluate_bundle
from tasks.evaluation.comparison import compare_with_champion
from tasks.evaluation.evaluation_result import EvaluationResult
from tasks.export import export_model
from tasks.gates import Evidence, GateReport, decide_gates
from tasks.gating.speed import measure_speed
from tasks.job import TrainingJob
from tasks.parity import check_parity
from tasks.pin import PinnedDataset, pin_dataset
from tasks.preflight import preflight
from tasks.promote import PromoteConfig
from tasks.register import register_bundle
from tasks.run_folder import run_folder, run_name
from tasks.seal import SealedBundle, seal_bundle
from tasks.settings import SiteSettings, load_site_settings
from tasks.showcase import leave_links, leave_results
from tasks.splitting.split_facts import Looks
from tasks.thresholds import choose_thresholds
from tasks.train import RunOrigin, TrainedModel, smoke_run, train_detector
from tasks.validate import check_dataset, require_accepted
from tasks.validation.findings import ValidationReport
from tasks.validation_artifact import leave_validation
from tasks.working_copy import WorkingCopy, prepare_working_copy


@flow(name="retrain", description=__doc__)
def retrain(job: TrainingJob, promotion: PromoteConfig) -> State:
    """One retraining. Completed as "Promoted", "Registered" or "Rejected"; the message says why."""
    if words := catch_up_words():
        return Cancelled(message=words)
    settings = load_site_settings()
    folder = run_folder(settings.runs)
    pinned, copy = _data(job, settings, folder)
    trained, bundle = _candidate(job, settings, folder, pinned, copy)
    evaluation, report = _judged(job, settings, folder, trained, bundle, copy)
    leave_links(
        settings.mlflow_url, settings.mlflow_public_url, trained.mlflow_run_id, folder / "data/data_report.html"
    )
    if not report.accepted:
        return Completed(name="Rejected", message="; ".join(check.words for check in report.refusals))
    version = register_bundle(settings.mlflow_url, bundle.path, evaluation, report, bundle.probe)
    if not (job.promote and report.promotable):
        return Completed(name="Registered", message=f"version {version.number}: {report.promotion.words}")
    promote(version.name, version.number, report.promotion.words, promotion)
    return Completed(name="Promoted", message=f"version {version.number}: {report.promotion.words}")


def _data(job: TrainingJob, settings: SiteSettings, folder: Path) -> tuple[PinnedDataset, WorkingCopy]:
    ref = settings.locate(job.dataset.ref)
    preflight(settings.mlflow_url, job.seal.name, ref.repository, job.train, settings.home, job.preflight)
    pinned = pin_dataset(ref, job.dataset.name, settings.pinned)
    scans = settings.home / "scans"
    report: ValidationReport = check_dataset(pinned, job.validation, folder / "data", scans, settings.pinned)
    leave_validation(report, folder / "data")
    require_accepted(report)
    looks = Looks(ImageLimits(job.validation.max_bytes, job.validation.max_pixels), scans)
    records, name = settings.home / "splits", job.dataset.name
    return pinned, prepare_working_copy(
        pinned.folder, job.splits, folder / "dataset", report.quarantined, records, name, looks
    )


def _candidate(
    job: TrainingJob, settings: SiteSettings, folder: Path, pinned: PinnedDataset, copy: WorkingCopy
) -> tuple[TrainedModel, SealedBundle]:
    smoke_run(job.train, job.smoke, copy.data_yaml, folder / "smoke", settings.home)
    origin = RunOrigin(job.seal.name, run_name(), pinned.pin, folder.name)
    trained = train_detector(job.train, copy.data_yaml, folder / "train", settings.mlflow_url, origin, settings.home)
    exported = export_model(trained.weights, job.train.imgsz, folder / "export", settings.home, job.export)
    rule = choose_thresholds(exported, copy.folder, job.thresholds)
    bundle = seal_bundle(
        exported, rule, copy.folder, pinned.pin, trained.mlflow_run_id, job.train.seed, job.seal, folder / "bundles"
    )
    return trained, bundle


def _judged(
    job: TrainingJob,
    settings: SiteSettings,
    folder: Path,
    trained: TrainedModel,
    bundle: SealedBundle,
    copy: WorkingCopy,
) -> tuple[EvaluationResult, GateReport]:
    names = trained.class_names
    ours, theirs = folder / "evaluation", folder / "champion-evaluation"
    candidate = evaluate_bundle(bundle.path, copy.folder, names, Split.TEST, job.evaluate, ours)
    champion_bundle = fetch_champion(settings.mlflow_url, job.seal.name, folder / "champion")
    champion = comparison = speed = None
    if champion_bundle is not None:
        champion = evaluate_bundle(champion_bundle, copy.folder, names, Split.TEST, job.evaluate, theirs)
        comparison = compare_with_champion(candidate, champion, ours, theirs, job.gates)
        speed = measure_speed(bundle.path, champion_bundle, job.gates)
    parity = check_parity(trained.weights, bundle.path, copy.folder, settings.home, job.parity)
    evidence = Evidence(candidate=candidate, parity=parity, champion=champion, comparison=comparison, speed=speed)
    report = decide_gates(evidence, job.gates, folder)
    leave_results(bundle.path, copy.folder, candidate, champion, report)
    return candidate, report
