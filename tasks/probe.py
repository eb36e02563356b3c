"""Make the probe set of a bundle: pictures of the validation split with the answers of FP32 ONNX Runtime."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from data_contracts.base import Sha256
from data_contracts.bundle import VerdictRule
from data_contracts.errors import DatasetError, Problem
from data_contracts.probe import PROBE_FILE, PROBE_PICTURES_DIR, ProbePicture, ProbeSet
from serving.bundle import hash_file
from serving.detector import Detector
from serving.probe_files import ProbeFolder, open_probe_set
from serving.verdict import judge, score_floor
from tasks.ground_truth import GroundTruth
from tasks.kinds_of_pictures import choose_of_all_kinds
from tasks.pictures import detect_files
from tasks.placing import move_into_place


def choose_probe(truth: Sequence[GroundTruth], count: int) -> tuple[GroundTruth, ...]:
    """Up to `count` pictures of the validation split, of all kinds. Raises DatasetError when there is no picture."""
    if not truth:
        raise DatasetError(Problem("probe set", "pictures in the validation split", "none", "Add some."))
    return choose_of_all_kinds(truth, count)


def make_probe_set(
    truth: Sequence[GroundTruth],
    count: int,
    detector: Detector,
    model: Sha256,
    rule: VerdictRule,
    target_root: Path,
) -> ProbeFolder:
    """Make `<target_root>/<digest>`, all or nothing, from `count` pictures and what the detector finds in them.

    Boxes are recorded from the lowest threshold on: those below cannot matter to a verdict.
    """
    target_root.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=target_root))
    try:
        probe = _write_probe(draft, choose_probe(truth, count), detector, model, rule)
        target = move_into_place(draft, target_root / probe.digest)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return open_probe_set(target, probe.digest)


def _write_probe(
    folder: Path, chosen: Sequence[GroundTruth], detector: Detector, model: Sha256, rule: VerdictRule
) -> ProbeSet:
    (folder / PROBE_PICTURES_DIR).mkdir()
    floor = score_floor(rule)
    pictures = []
    answers = detect_files(detector, [one.picture for one in chosen], floor)
    for number, (one, found) in enumerate(zip(chosen, answers, strict=True)):
        name = f"{PROBE_PICTURES_DIR}/{number:03d}{one.picture.suffix.lower()}"
        shutil.copyfile(one.picture, folder / name)
        pictures.append(
            ProbePicture(
                file=name,
                entry=hash_file(folder / name),
                verdict=judge(found, rule)[0],
                detections=found.records(detector.spec.class_names),
            )
        )
    probe = ProbeSet(schema_version=1, model=model, score_floor=floor, pictures=tuple(pictures))
    (folder / PROBE_FILE).write_text(probe.to_json(), encoding="utf-8")
    return probe
