"""Outcome: today's data became a gated candidate, and champion if it is better. Runs on pool `training`, queue `train`.

pin -> validate -> split -> smoke run -> train -> export -> thresholds -> quantise -> seal
    -> evaluate -> parity -> gates -> register -> promote

A later attempt of the same run goes on where an earlier one ended: it keeps the pinned data, the working copy and the
training, and makes what follows again.
"""

from __future__ import annotations

from pathlib import Path

from prefect import State, flow
from prefect.states import Cancelled, Completed, Failed

from data_contracts.dataset import DatasetPin, Split
from data_contracts.errors import DatasetRepoError, PasslineError, RegistryError
from flows.promote import promote
from serving.images import ImageLimits
from tasks.alerts import INTERRUPTED
from tasks.backlog import catch_up_words
from tasks.champion import fetch_champion
from tasks.evaluate import evaluate_bundle
from tasks.evaluation.comparison import compare_with_champion
from tasks.evaluation.evaluation_result import EvaluationResult
from tasks.export import export_model
from tasks.gate_report.gate_case import MeasuredBundle
from tasks.gates import Evidence, GateReport, decide_gates
from tasks.gating.remembered import Memory, ask_earlier_champions
from tasks.gating.speed import measure_speed
from tasks.job import TrainingJob
from tasks.parity import check_parity
from tasks.pin import PinnedDataset, pin_dataset
from tasks.preflight import preflight
from tasks.promote import PromoteConfig
from tasks.quantise import quantise_model
from tasks.reentry import copy_is_whole, report_is_there, same_revision
from tasks.register import attest_decision, keep_rejected, register_bundle
from tasks.report_gates import leave_gate_report, write_gate_report
from tasks.run_folder import TRAINING, attempt, first_attempt, keep, once, recall, run_folder, run_name
from tasks.seal import SealedBundle, seal_bundle
from tasks.settings import SiteSettings, load_site_settings
from tasks.showcase import leave_links, leave_results
from tasks.smoke import smoke_run
from tasks.splitting.split_facts import Looks
from tasks.thresholds import choose_thresholds
from tasks.train import TrainedModel, train_detector
from tasks.training.mlflow_run import RunOrigin
from tasks.validate import check_dataset, require_accepted
from tasks.validation.findings import ValidationReport
from tasks.validation_artifact import leave_validation
from tasks.working_copy import WorkingCopy, prepare_working_copy

OUTSIDE_IS_GONE = (RegistryError, DatasetRepoError)
"""Systems that come back: the run ends as interrupted, and `attend` takes it up again."""


@flow(name="retrain", description=__doc__)
def retrain(job: TrainingJob, promotion: PromoteConfig) -> State:
    """One retraining. Completed as "Promoted", "Registered" or "Rejected"; the message says why."""
    if first_attempt() and (words := catch_up_words()):
        return Cancelled(message=words)
    settings = load_site_settings()
    folder = run_folder(settings.runs)
    with attempt(folder):
        try:
            return _retrained(job, promotion, settings, folder)
        except OUTSIDE_IS_GONE as error:
            return Failed(name=INTERRUPTED, message=str(error))
        except PasslineError as error:  # its words say all; the step that raised it has the traceback
            return Failed(message=str(error))


def _retrained(job: TrainingJob, promotion: PromoteConfig, settings: SiteSettings, folder: Path) -> State:
    job = job.within_resources()
    pinned, copy = _data(job, settings, folder)
    trained, bundle = _candidate(job, settings, folder, pinned, copy)
    evaluation, report = _judged(job, settings, folder, trained, bundle, copy)
    leave_links(
        settings.mlflow_url, settings.mlflow_public_url, trained.mlflow_run_id, folder / "data/data_report.html"
    )
    if not report.accepted:
        return Completed(name="Rejected", message="\n".join(check.words for check in report.refusals))
    version = register_bundle(settings.mlflow_url, bundle.path, evaluation, report, bundle.probe)
    if not (job.promote and report.promotable):
        return Completed(name="Registered", message=f"version {version.number}: {report.promotion.words}")
    promote(version.name, version.number, report.promotion.words, promotion)
    return Completed(name="Promoted", message=f"version {version.number}: {report.promotion.words}")


def _data(job: TrainingJob, settings: SiteSettings, folder: Path) -> tuple[PinnedDataset, WorkingCopy]:
    preflight(settings.mlflow_url, job.ahead(settings), job.preflight)
    pinned = _pinned(job, settings, folder)
    scans, found_in = settings.home / "scans", folder / "data"
    report = once(
        folder,
        "validate",
        ValidationReport,
        lambda: check_dataset(pinned, job.validation, found_in, scans, settings.pinned),
        lambda known: report_is_there(known, found_in),
    )
    leave_validation(report, found_in)
    require_accepted(report)
    looks = Looks(ImageLimits(job.validation.max_bytes, job.validation.max_pixels), scans)
    records, name, left_out = settings.home / "splits", job.dataset.name, report.quarantined
    return pinned, once(
        folder,
        "split",
        WorkingCopy,
        lambda: prepare_working_copy(pinned.folder, job.splits, folder / "dataset", left_out, records, name, looks),
        copy_is_whole,
    )


def _pinned(job: TrainingJob, settings: SiteSettings, folder: Path) -> PinnedDataset:
    ref, known = settings.locate(job.dataset.ref), recall(folder, "pin", DatasetPin)
    pinned = pin_dataset(same_revision(ref, known), job.dataset.name, settings.pinned)
    pin = known or pinned.pin
    keep(folder, "pin", DatasetPin, pin)
    return PinnedDataset(pin, pinned.folder)


def _candidate(
    job: TrainingJob, settings: SiteSettings, folder: Path, pinned: PinnedDataset, copy: WorkingCopy
) -> tuple[TrainedModel, SealedBundle]:
    once(
        folder, "smoke", float, lambda: smoke_run(job.train, job.smoke, copy.data_yaml, folder / "smoke", settings.home)
    )
    origin = RunOrigin(job.seal.name, run_name(), pinned.pin, folder.name)
    place = copy.data_yaml, folder / TRAINING, settings.mlflow_url
    trained = train_detector(job.train, *place, origin, settings.home, job.recovery, job.watch, job)
    exported = export_model(trained.weights, job.train.imgsz, folder / "export", settings.home, job.export)
    rule = choose_thresholds(exported, copy.folder, job.thresholds)
    quantised = quantise_model(exported, rule, copy.folder, job.quantise, job.evaluate, job.seal, folder / "quantise")
    seed, bundles = job.train.seed, folder / "bundles"
    bundle = seal_bundle(exported, rule, copy.folder, pinned.pin, trained, seed, job.seal, bundles, quantised)
    return trained, bundle


def _judged(
    job: TrainingJob,
    settings: SiteSettings,
    folder: Path,
    trained: TrainedModel,
    bundle: SealedBundle,
    copy: WorkingCopy,
) -> tuple[EvaluationResult, GateReport]:
    names, ours = trained.class_names, MeasuredBundle(bundle.path, folder / "evaluation")
    candidate = evaluate_bundle(ours.bundle, copy.folder, names, Split.TEST, job.evaluate, ours.evaluation)
    int8 = None
    if bundle.int8:
        target = folder / "int8-evaluation"
        int8 = evaluate_bundle(ours.bundle, copy.folder, names, Split.TEST, job.evaluate, target, "int8")
    parity = check_parity(trained.weights, ours.bundle, copy.folder, settings.home, job.parity)
    evidence, memory = Evidence(candidate=candidate, parity=parity, int8=int8), Memory()
    champion_bundle = fetch_champion(settings.mlflow_url, job.seal.name, folder / "champion")
    theirs = MeasuredBundle(champion_bundle, folder / "champion-evaluation") if champion_bundle else None
    if theirs is not None:
        evidence, memory = _against_champion(job, copy, names, evidence, ours, theirs)
    report = decide_gates(evidence, job.gates, folder)
    attest_decision(ours.bundle, candidate, report, memory.handed_on)
    page = write_gate_report(report, evidence, job.gates, copy.folder, ours, theirs, folder)
    run_id, public_url = trained.mlflow_run_id, settings.mlflow_public_url
    url = leave_gate_report(settings.mlflow_url, public_url, run_id, page, ours.evaluation, report)
    leave_results(ours.bundle, copy.folder, candidate, evidence.champion, report, url)
    if not report.accepted:
        keep_rejected(settings.mlflow_url, run_id, ours.bundle)
    return candidate, report


def _against_champion(
    job: TrainingJob,
    copy: WorkingCopy,
    names: tuple[str, ...],
    evidence: Evidence,
    ours: MeasuredBundle,
    theirs: MeasuredBundle,
) -> tuple[Evidence, Memory]:
    champion = evaluate_bundle(theirs.bundle, copy.folder, names, Split.TEST, job.evaluate, theirs.evaluation)
    comparison = compare_with_champion(evidence.candidate, champion, ours.evaluation, theirs.evaluation, job.gates)
    memory = ask_earlier_champions(ours.evaluation, theirs.evaluation, theirs.bundle, copy.folder, names, job.gates)
    found = {
        "champion": champion,
        "comparison": comparison,
        "speed": measure_speed(ours.bundle, theirs.bundle, job.gates),
        "earlier": memory.earlier,
    }
    return evidence.model_copy(update=found), memory
