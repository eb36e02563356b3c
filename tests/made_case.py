"""A made-up gate decision with everything that a gate report shows: pictures on disk, candidate, champion, INT8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2

import builders
from data_contracts.dataset import Split
from data_contracts.detections import Detections
from made_results import NAMES, THRESHOLD, made_detections, made_truth, measured
from serving.bundle import open_bundle
from tasks.evaluate import Measured
from tasks.evaluation.comparison import compare
from tasks.gate_report.gate_case import GateCase
from tasks.gates import Evidence, decide
from tasks.ground_truth import GroundTruth, PictureTruth, write_ground_truth
from training_fakes import gate_policy, parity, speed

POLICY = gate_policy(
    min_map50=0.5, max_escape_rate=0.5, max_overkill_rate=0.5, max_false_alarms_per_picture=2.0, margin=0.04,
    max_forgotten=0.35, max_int8_loss=0.05,
)  # fmt: skip


def write_pictures(folder: Path, truth: Sequence[GroundTruth]) -> list[GroundTruth]:
    """The same truth with pictures on disk: dark boxes on noise, so that crops show something."""
    written = []
    for number, one in enumerate(truth):
        image = builders.noisy_plate(one.image_wh, number) // 4 + 130
        for box in one.boxes_xyxy_px.round().astype(int):
            image[box[1] : box[3], box[0] : box[2]] //= 2
        path = folder / one.picture.name
        assert cv2.imwrite(str(path), image)
        written.append(replace(one, picture=path))
    return written


def store_truth(folder: Path, truth: Sequence[GroundTruth]) -> None:
    """Write `truth`, whose pictures lie in `folder`, as the test split of a working copy."""
    rows = [
        PictureTruth(
            picture=one.picture.relative_to(folder).as_posix(),
            image_wh=one.image_wh,
            boxes_xyxy_px=tuple((box[0], box[1], box[2], box[3]) for box in one.boxes_xyxy_px.tolist()),
            class_ids=tuple(one.class_ids.tolist()),
        )
        for one in truth
    ]
    write_ground_truth(folder, {Split.TEST: rows})


def made_case(
    folder: Path,
    *,
    pictures: int = 60,
    names: Sequence[str] = NAMES,
    found: Sequence[Detections] | None = None,
    with_champion: bool = True,
    with_int8: bool = True,
    **policy: Any,
) -> GateCase:
    """A candidate that finds most, or `found`; `policy` replaces fields of POLICY."""
    truth = write_pictures(folder, made_truth(pictures, len(names)))
    rules = POLICY.model_copy(update=policy)
    candidate = _measured(truth, made_detections(truth, len(names), 1) if found is None else found, "c", names)
    champion = _measured(truth, made_detections(truth, len(names), 2), "d", names) if with_champion else None
    int8 = _measured(truth, made_detections(truth, len(names), 1, jitter_px=3.0), "c", names) if with_int8 else None
    evidence = Evidence(
        candidate=candidate.result,
        parity=parity(),
        champion=champion.result if champion else None,
        comparison=_compared(candidate, champion, rules) if champion else None,
        int8=int8.result if int8 else None,
        speed=speed() if champion else None,
    )
    sealed = builders.make_bundle(folder, class_names=names, threshold=THRESHOLD)
    manifest = open_bundle(sealed).manifest
    return GateCase(
        report=decide(evidence, rules),
        evidence=evidence,
        policy=rules,
        manifest=manifest,
        truth=truth,
        found=candidate.found,
        scores=candidate.scores,
        champion_manifest=manifest if champion else None,
        champion_scores=champion.scores if champion else None,
    )


def _measured(truth: Sequence[GroundTruth], found: Sequence[Detections], digest: str, names: Sequence[str]) -> Measured:
    return measured(truth, found, digest, names, names)


def _compared(candidate: Measured, champion: Measured, policy: Any) -> Any:
    return compare((candidate.result, candidate.scores), (champion.result, champion.scores), policy)


def nothing(count: int) -> list[Detections]:
    """No box in any of so many pictures."""
    return [Detections.empty() for _ in range(count)]
