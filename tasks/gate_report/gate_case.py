"""What a gate report is about: the decision, what it rests on, and the pictures to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from data_contracts.bundle import BundleManifest
from data_contracts.dataset import Split
from data_contracts.detections import Detections
from serving.bundle import open_bundle
from tasks.evaluation.found_boxes import BOXES_FILE, load_boxes
from tasks.evaluation.picture_scores import SCORES_FILE, PictureScores, load_scores
from tasks.gates import Evidence, GateReport
from tasks.gating.gate_policy import GatePolicy
from tasks.ground_truth import GroundTruth, read_ground_truth


@dataclass(frozen=True, eq=False)
class GateCase:
    """One candidate. `found` are its boxes from the score floor on, by picture, in classes of the bundle."""

    report: GateReport
    evidence: Evidence
    policy: GatePolicy
    manifest: BundleManifest
    truth: Sequence[GroundTruth]
    found: Sequence[Detections]
    scores: PictureScores
    champion_manifest: BundleManifest | None = None
    champion_scores: PictureScores | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    """Further facts on where it comes from; what starts with http becomes a link."""

    @property
    def names(self) -> tuple[str, ...]:
        """The classes of the dataset."""
        return tuple(one.name for one in self.evidence.candidate.classes)


@dataclass(frozen=True)
class MeasuredBundle:
    """A sealed bundle and the folder that its measurement was written to."""

    bundle: Path
    evaluation: Path


def read_case(
    report: GateReport,
    evidence: Evidence,
    policy: GatePolicy,
    working_copy: Path,
    candidate: MeasuredBundle,
    champion: MeasuredBundle | None,
    about: Mapping[str, str],
) -> GateCase:
    """Read what the steps before have left. Raises BundleError or DatasetError for what is missing or damaged."""
    return GateCase(
        report=report,
        evidence=evidence,
        policy=policy,
        manifest=open_bundle(candidate.bundle).manifest,
        truth=read_ground_truth(working_copy, Split.TEST),
        found=load_boxes(candidate.evaluation / BOXES_FILE),
        scores=load_scores(candidate.evaluation / SCORES_FILE),
        champion_manifest=open_bundle(champion.bundle).manifest if champion else None,
        champion_scores=load_scores(champion.evaluation / SCORES_FILE) if champion else None,
        about=about,
    )
