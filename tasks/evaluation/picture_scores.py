"""The per-picture results that average precision can be counted from again, for any drawing of the pictures.

One row per found box: its picture, class and score, and at which overlaps it is a true one. That is all that COCO's
definition needs; boxes and pictures themselves are not kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from data_contracts.detections import Detections
from data_contracts.errors import DatasetError, Problem
from tasks.evaluation.matching import pairwise_iou
from tasks.ground_truth import GroundTruth

SCORES_FILE = "evaluation-scores.npz"
OVERLAPS = np.linspace(0.5, 0.95, 10)
"""The overlaps of COCO; bit i of `hits` stands for OVERLAPS[i]."""
FIELDS = ("names", "instances", "picture", "class_id", "score", "hits", "true_class", "true_found")


@dataclass(frozen=True, eq=False)
class PictureScores:
    """Best score first, equal scores in the order of the pictures; class ids are those of the dataset.

    names: str (pictures,); instances: int32 (pictures, classes), true boxes.
    picture: int32 (boxes,); class_id: int16 (boxes,); score: float32 (boxes,); hits: uint16 (boxes,).
    true_class: int16 (true boxes,), in label order; true_found: bool (true boxes,), at the operating point.
    """

    names: npt.NDArray[np.str_]
    instances: npt.NDArray[np.int32]
    picture: npt.NDArray[np.int32]
    class_id: npt.NDArray[np.int16]
    score: npt.NDArray[np.float32]
    hits: npt.NDArray[np.uint16]
    true_class: npt.NDArray[np.int16]
    true_found: npt.NDArray[np.bool_]


def coco_hits(found_xyxy: npt.NDArray[np.float32], true_xyxy: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """For boxes of one picture and class, best score first: bits of the overlaps at which each is a true one.

    COCO's rule: each box takes the free true box that it overlaps most, the last of equals.
    """
    hits = np.zeros(len(found_xyxy), np.uint16)
    if not len(found_xyxy) or not len(true_xyxy):
        return hits
    overlaps = pairwise_iou(found_xyxy, true_xyxy)[:, ::-1]
    taken = np.zeros((len(OVERLAPS), overlaps.shape[1]), np.bool_)
    rows, bits = np.arange(len(OVERLAPS)), np.uint16(1) << np.arange(len(OVERLAPS), dtype=np.uint16)
    for row in np.flatnonzero(overlaps.max(axis=1) >= OVERLAPS[0]):
        free = np.where(taken, -1.0, overlaps[row])
        best = free.argmax(axis=1)
        is_true = free[rows, best] >= OVERLAPS
        taken[rows[is_true], best[is_true]] = True
        hits[row] = bits[is_true].sum()
    return hits


def score_pictures(
    truth: Sequence[GroundTruth],
    found: Sequence[Detections],
    class_count: int,
    max_detections: int,
    true_found: npt.NDArray[np.bool_],
) -> PictureScores:
    """From boxes in classes of the dataset; those of other classes must be gone. `true_found` is in label order."""
    parts = [
        (np.full(len(hits), row, np.int32), np.full(len(hits), class_id, np.int16), scores, hits)
        for row, (true, boxes) in enumerate(zip(truth, found, strict=True))
        for class_id, scores, hits in _by_class(true, boxes, max_detections)
    ]
    empty = (np.zeros(0, np.int32), np.zeros(0, np.int16), np.zeros(0, np.float32), np.zeros(0, np.uint16))
    picture, class_ids, scores, hits = (np.concatenate(columns) for columns in zip(empty, *parts, strict=True))
    order = np.argsort(-scores, kind="stable")
    instances = np.zeros((len(truth), class_count), np.int32)
    for row, true in enumerate(truth):
        np.add.at(instances[row], true.class_ids, 1)
    return PictureScores(
        names=np.array([true.picture.name for true in truth], np.str_),
        instances=instances,
        picture=picture[order],
        class_id=class_ids[order],
        score=scores[order],
        hits=hits[order],
        true_class=np.concatenate([np.zeros(0, np.int64), *(true.class_ids for true in truth)]).astype(np.int16),
        true_found=true_found,
    )


def _by_class(
    true: GroundTruth, boxes: Detections, max_detections: int
) -> Iterator[tuple[int, npt.NDArray[np.float32], npt.NDArray[np.uint16]]]:
    for class_id in np.unique(boxes.class_ids):
        own = boxes.where(boxes.class_ids == class_id)
        best = np.argsort(-own.scores, kind="stable")[:max_detections]
        hits = coco_hits(own.boxes_xyxy_px[best], true.boxes_xyxy_px[true.class_ids == class_id])
        yield int(class_id), own.scores[best], hits


def save_scores(scores: PictureScores, path: Path) -> None:
    """Write the arrays, compressed."""
    draft = path.with_name(f"draft-{path.name}")
    np.savez_compressed(draft, **{name: getattr(scores, name) for name in FIELDS})
    draft.replace(path)


def load_scores(path: Path) -> PictureScores:
    """Raises DatasetError for a file that is missing or damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return PictureScores(**{name: stored[name] for name in FIELDS})
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        got = f"{type(error).__name__}: {error}"
        raise DatasetError(Problem(str(path), "per-picture results", got, "Evaluate the bundle again.")) from error
