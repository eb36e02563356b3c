"""Seal a bundle: golden pictures, manifest, digest. From then on nothing in it changes but its attestations."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from prefect import task
from pydantic import Field

from data_contracts.base import Contract, Fraction, Name, Sha256
from data_contracts.bundle import (
    ATTESTATIONS_DIR,
    INT8_MODEL_FILE,
    MANIFEST_FILE,
    MODEL_FILE,
    Attestation,
    BundleManifest,
    Precision,
    ProbeLimit,
    Provenance,
    Tolerance,
    VerdictRule,
)
from data_contracts.dataset import DatasetPin, Split
from data_contracts.errors import BundleError, EngineError
from data_contracts.probe import MAX_PROBE_PICTURES, PROBES_DIR
from data_contracts.release import now
from serving.bundle import Bundle, hash_file, open_bundle, write_manifest
from serving.detector import check_golden, open_detector
from serving.probe import judge_answers, rule_for
from serving.probe_files import ProbeFolder
from serving.trial import first_problem
from serving.verdict import score_floor
from tasks.export import ExportedModel
from tasks.golden_pictures import choose_golden, write_golden
from tasks.ground_truth import GroundTruth, read_ground_truth
from tasks.pictures import bundle_detector, cpu_options, draft_detector
from tasks.placing import move_into_place
from tasks.probe import make_probe_set
from tasks.provenance import code_revision, library_versions
from tasks.quantising.quantised import FP32_ONLY, Quantised
from tasks.run_log import current_logger
from tasks.train import TrainedModel


class SealConfig(Contract):
    """What goes into a bundle beside the model."""

    name: Name = Field(description="Registry name of the model.")
    golden_pictures: int = Field(ge=1, le=5, description="Pictures whose detections every host must reproduce.")
    golden_score_floor: Fraction = Field(gt=0, description="Boxes over this, or over a lower threshold, are recorded.")
    tolerances: dict[Precision, Tolerance] = Field(description="How far a host's answer may lie from the recorded one.")
    probe_pictures: int = Field(
        ge=1, le=MAX_PROBE_PICTURES, description="Pictures by which a host judges other engines and precisions."
    )
    probe_limits: dict[Precision, ProbeLimit] = Field(
        description="How much an engine of a precision may differ on them and still serve; one without is not served."
    )


@dataclass(frozen=True)
class SealedBundle:
    """A sealed bundle and its probe set, each in a folder that is named by its digest.

    `int8`: it holds a quantised model, which `evaluate_bundle(..., precision="int8")` measures.
    """

    path: Path
    digest: str
    version: str
    probe: Path
    int8: bool = False


def version_label(at: datetime) -> str:
    """A label for people, from the time of sealing.

    >>> version_label(datetime(2026, 12, 1, 4, 15, 22, tzinfo=UTC))
    '2026.12.1-041522'
    """
    return f"{at.year}.{at.month}.{at.day}-{at:%H%M%S}"


def provenance_of(dataset: DatasetPin, mlflow_run_id: str, seed: int, teacher_sha256: str | None = None) -> Provenance:
    """Where the bundle comes from."""
    code = code_revision()
    return Provenance(
        dataset_name=dataset.name,
        dataset_revision=dataset.commit,
        dataset_hash=dataset.dvc_hash,
        code_commit=code.commit,
        code_dirty=code.dirty,
        mlflow_run_id=mlflow_run_id,
        seed=seed,
        versions=library_versions(),
        teacher_sha256=teacher_sha256,
    )


def seal(
    exported: ExportedModel,
    rule: VerdictRule,
    truth: Sequence[GroundTruth],
    provenance: Provenance,
    config: SealConfig,
    target_root: Path,
    quantised: Quantised = FP32_ONLY,
) -> SealedBundle:
    """Make the bundle `<target_root>/<digest>`, all or nothing, and check it as a host would.

    Its probe set is made first, as `<target_root>/../probes/<digest>`, for the bundle names it. A quantised model that
    a host would refuse is left out, and the manifest says so. Raises BundleError when the finished bundle does not
    reproduce its own golden pictures.
    """
    target_root.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=target_root))
    try:
        shutil.copyfile(exported.model, draft / MODEL_FILE)
        chosen = choose_golden(truth, config.golden_pictures)
        floor = min(config.golden_score_floor, score_floor(rule))
        detector = draft_detector(draft / MODEL_FILE, exported.spec)
        write_golden(draft, chosen, detector, rule, floor)
        probes = target_root.parent / PROBES_DIR
        probe = make_probe_set(truth, config.probe_pictures, detector, exported.sha256, rule, probes)
        writing = partial(_write_bundle, draft, exported, rule, provenance, config, probe.digest)
        bundle = writing(quantised)
        check_golden(bundle_detector(bundle), bundle)
        if quantised.model is not None and (reason := _why_no_host_serves_int8(bundle, probe)):
            (draft / INT8_MODEL_FILE).unlink()
            bundle = writing(quantised.refused(reason))
        target = move_into_place(draft, target_root / bundle.digest)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return SealedBundle(
        target, bundle.digest, bundle.manifest.version, probe.path, INT8_MODEL_FILE in bundle.manifest.files
    )


def _write_bundle(
    folder: Path,
    exported: ExportedModel,
    rule: VerdictRule,
    provenance: Provenance,
    config: SealConfig,
    probe_set: Sha256,
    quantised: Quantised,
) -> Bundle:
    """Write the manifest over the files of a draft, and open it as a host would."""
    if quantised.model is not None:
        shutil.copyfile(quantised.model, folder / INT8_MODEL_FILE)
    (folder / MANIFEST_FILE).unlink(missing_ok=True)
    manifest = _manifest(folder, exported, rule, provenance, config, probe_set, quantised)
    return open_bundle(folder, write_manifest(folder, manifest))


def _why_no_host_serves_int8(bundle: Bundle, probe: ProbeFolder) -> str:
    """The objections of golden pictures and probe set to the quantised model, as a host makes them; empty when none."""
    options = replace(cpu_options(), precision="int8")
    try:
        detector = open_detector(bundle, options)
        check_golden(detector, bundle)
        floor = probe.probe.score_floor
        found = [boxes for image in probe.images() for boxes in detector.detect([image], floor)]
        judgement = judge_answers(probe.probe, found, rule_for(bundle.manifest, "int8"))
    except (BundleError, EngineError) as error:
        return f"golden pictures: {first_problem(error)}"
    return "" if judgement.passed else f"probe set: {judgement.words}"


def _manifest(
    folder: Path,
    exported: ExportedModel,
    rule: VerdictRule,
    provenance: Provenance,
    config: SealConfig,
    probe_set: Sha256,
    quantised: Quantised,
) -> BundleManifest:
    at = datetime.now(UTC).replace(microsecond=0)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return BundleManifest(
        schema_version=1,
        name=config.name,
        version=version_label(at),
        created_at=at,
        model=exported.spec,
        verdict=rule,
        tolerances=config.tolerances,
        provenance=provenance,
        files={path.relative_to(folder).as_posix(): hash_file(path) for path in files},
        probe_set=probe_set,
        probe_limits=config.probe_limits,
        quantisation=quantised.made,
        build_wishes=quantised.build_wishes,
    )


def add_attestation(bundle_path: Path, kind: str, statement: Mapping[str, object]) -> Path:
    """Write `attestations/<kind>.json` of a sealed bundle, replacing an earlier one as a whole.

    Raises BundleError when the bundle is broken; its digest stays what it is.
    """
    digest = open_bundle(bundle_path).digest
    attestation = Attestation(kind=kind, digest=digest, made_at=now(), statement=dict(statement))
    folder = bundle_path / ATTESTATIONS_DIR
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=bundle_path.parent) as drafts:
        draft = Path(drafts) / f"{kind}.json"
        draft.write_text(attestation.to_json(), encoding="utf-8")
        return draft.replace(folder / draft.name)


@task
def seal_bundle(
    exported: ExportedModel,
    rule: VerdictRule,
    working_copy: Path,
    dataset: DatasetPin,
    trained: TrainedModel,
    seed: int,
    config: SealConfig,
    target_root: Path,
    quantised: Quantised = FP32_ONLY,
) -> SealedBundle:
    """Seal an exported model with golden pictures of the validation split."""
    truth = read_ground_truth(working_copy, Split.VAL)
    provenance = provenance_of(dataset, trained.mlflow_run_id, seed, trained.teacher_sha256)
    sealed = seal(exported, rule, truth, provenance, config, target_root, quantised)
    if quantised.model is not None and not sealed.int8:
        made = open_bundle(sealed.path).manifest.quantisation
        current_logger().warning("INT8 is left out after all: %s", made and made.reason)
    return sealed
