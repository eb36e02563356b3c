"""Seal a bundle: golden pictures, manifest, digest. From then on nothing in it changes but its attestations."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import cv2
import numpy as np
from prefect import task
from pydantic import Field

from data_contracts.base import Contract, Fraction, Name, Sha256
from data_contracts.bundle import (
    ATTESTATIONS_DIR,
    GOLDEN_DIR,
    GOLDEN_FILE,
    MODEL_FILE,
    Attestation,
    BundleManifest,
    GoldenPicture,
    GoldenSet,
    Precision,
    ProbeLimit,
    Provenance,
    Tolerance,
    VerdictRule,
)
from data_contracts.dataset import DatasetPin, Split
from data_contracts.errors import DatasetError, Problem
from data_contracts.probe import MAX_PROBE_PICTURES, PROBES_DIR
from data_contracts.release import now
from serving.bundle import hash_file, open_bundle, write_manifest
from serving.detector import Detector, check_golden
from serving.verdict import judge, score_floor
from tasks.export import ExportedModel
from tasks.ground_truth import GroundTruth, read_ground_truth
from tasks.pictures import bundle_detector, draft_detector, read_picture
from tasks.placing import move_into_place
from tasks.probe import make_probe_set
from tasks.provenance import code_revision, library_versions


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
    """A sealed bundle and its probe set, each in a folder that is named by its digest."""

    path: Path
    digest: str
    version: str
    probe: Path


def version_label(at: datetime) -> str:
    """A label for people, from the time of sealing.

    >>> version_label(datetime(2026, 12, 1, 4, 15, 22, tzinfo=UTC))
    '2026.12.1-041522'
    """
    return f"{at.year}.{at.month}.{at.day}-{at:%H%M%S}"


def choose_golden(truth: Sequence[GroundTruth], count: int) -> tuple[GroundTruth, ...]:
    """Pictures that show most between them: one without defects, one that is not square, then rare classes first.

    Worked example: of a good picture, two with class 0 and one with class 1, three are wished for: the good one, the
    one with class 1 and the first with class 0. Raises DatasetError when there is no picture.
    """
    if not truth:
        raise DatasetError(Problem("golden pictures", "pictures in the validation split", "none", "Add some."))
    chosen: list[GroundTruth] = []
    wishes = [
        [true for true in truth if not len(true.class_ids)],
        [true for true in truth if len(true.class_ids) and true.image_wh[0] != true.image_wh[1]],
    ]
    for wish in wishes:
        chosen += [true for true in wish[:1] if not _has(chosen, true)]
    rest = list(truth)
    while len(chosen) < min(count, len(truth)):
        rest = [true for true in rest if not _has(chosen, true)]
        chosen.append(max(rest, key=lambda true: _news(true, chosen, truth)))
    return tuple(chosen[:count])


def _has(chosen: Sequence[GroundTruth], true: GroundTruth) -> bool:
    return any(one is true for one in chosen)


def _news(true: GroundTruth, chosen: Sequence[GroundTruth], truth: Sequence[GroundTruth]) -> float:
    """How much a picture adds: classes not yet shown, the rarer the more; a picture with defects before one without."""
    shown = {int(class_id) for one in chosen for class_id in one.class_ids}
    ids = [int(class_id) for one in truth for class_id in one.class_ids]
    news = sum(1 / ids.count(class_id) for class_id in {int(class_id) for class_id in true.class_ids} - shown)
    return news + (1e-6 if len(true.class_ids) else 0.0)


def write_golden(
    folder: Path, chosen: Sequence[GroundTruth], detector: Detector, rule: VerdictRule, floor: float
) -> GoldenSet:
    """Write the golden pictures as 8-bit RGB PNG and record what the detector finds in them, one by one."""
    (folder / GOLDEN_DIR).mkdir(parents=True)
    pictures = []
    for number, true in enumerate(chosen):
        image = read_picture(true.picture)
        name = f"{GOLDEN_DIR}/{number}.png"
        if not cv2.imwrite(str(folder / name), np.ascontiguousarray(image[:, :, ::-1])):
            raise OSError(f"{folder / name}: could not be written")
        (found,) = detector.detect([image], floor)
        verdict, _ = judge(found, rule)
        pictures.append(GoldenPicture(file=name, verdict=verdict, detections=found.records(detector.spec.class_names)))
    golden = GoldenSet(score_floor=floor, pictures=tuple(pictures))
    (folder / GOLDEN_FILE).write_text(golden.to_json(), encoding="utf-8")
    return golden


def provenance_of(dataset: DatasetPin, mlflow_run_id: str, seed: int) -> Provenance:
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
    )


def seal(
    exported: ExportedModel,
    rule: VerdictRule,
    truth: Sequence[GroundTruth],
    provenance: Provenance,
    config: SealConfig,
    target_root: Path,
) -> SealedBundle:
    """Make the bundle `<target_root>/<digest>`, all or nothing, and check it as a host would.

    Its probe set is made first, as `<target_root>/../probes/<digest>`, for the bundle names it. Raises BundleError when
    the finished bundle does not reproduce its own golden pictures.
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
        manifest = _manifest(draft, exported, rule, provenance, config, probe.digest)
        digest = write_manifest(draft, manifest)
        bundle = open_bundle(draft, digest)
        check_golden(bundle_detector(bundle), bundle)
        target = move_into_place(draft, target_root / digest)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return SealedBundle(target, digest, manifest.version, probe.path)


def _manifest(
    folder: Path,
    exported: ExportedModel,
    rule: VerdictRule,
    provenance: Provenance,
    config: SealConfig,
    probe_set: Sha256,
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
    mlflow_run_id: str,
    seed: int,
    config: SealConfig,
    target_root: Path,
) -> SealedBundle:
    """Seal an exported model with golden pictures of the validation split."""
    truth = read_ground_truth(working_copy, Split.VAL)
    return seal(exported, rule, truth, provenance_of(dataset, mlflow_run_id, seed), config, target_root)
