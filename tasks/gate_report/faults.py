"""The worst misses and the worst false alarms of a measurement, each with the words that say what happened there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data_contracts.detections import Detections
from tasks.evaluation.matching import pairwise_iou
from tasks.gate_report.confusion import match_all
from tasks.ground_truth import GroundTruth

NEAR = 0.1
"""Overlap from which on a box is near enough to be told of."""
Box = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Fault:
    """One true box that was missed, or one false alarm. Boxes are float32 (n, 4), pixels of the picture.

    `rank`: the lower, the worse. `true_boxes` and `found_boxes` are what to draw; the first of its kind is meant.
    """

    picture: int
    class_id: int
    passes: bool
    words: str
    rank: tuple[float, ...]
    true_boxes: Box
    found_boxes: Box


@dataclass(frozen=True, eq=False)
class Judged:
    """One picture: all boxes found, in classes of the dataset, and those over their thresholds."""

    true: GroundTruth
    found: Detections
    over: Detections
    thresholds: Sequence[float]
    names: Sequence[str]
    iou: float


def worst_faults(judged: Sequence[Judged], count: int) -> tuple[list[Fault], list[Fault]]:
    """Misses and false alarms.

    A miss is worst where the part passes as good, then by its share of the picture. A false alarm is worst on a good
    part, then by its score.
    """
    misses: list[Fault] = []
    alarms: list[Fault] = []
    for number, one in enumerate(judged):
        right, wrong = match_all(one.over, one.true, one.iou)
        misses += _misses(number, one, right)
        alarms += _alarms(number, one, right, wrong)
    return sorted(misses, key=_rank)[:count], sorted(alarms, key=_rank)[:count]


def _rank(fault: Fault) -> tuple[float, ...]:
    return fault.rank


def _misses(number: int, one: Judged, right: npt.NDArray[np.int64]) -> Iterator[Fault]:
    width, height = one.true.image_wh
    passes = not len(one.over)
    for index in np.setdiff1d(np.arange(len(one.true.class_ids)), right):
        box, class_id = one.true.boxes_xyxy_px[index], int(one.true.class_ids[index])
        share = float(np.prod(box[2:] - box[:2])) / (width * height)
        words, near = _at_the_miss(one, box, class_id)
        rank = (float(not passes), -share, float(number), float(index))
        yield Fault(number, class_id, passes, words, rank, box[None], near)


def _at_the_miss(one: Judged, box: Box, class_id: int) -> tuple[str, Box]:
    """What lies where the true box is: of its class under the threshold, of another class, beside it, or nothing."""
    overlaps = pairwise_iou(one.found.boxes_xyxy_px, box[None])[:, 0]
    same = one.found.class_ids == class_id
    over = one.found.scores >= np.array(one.thresholds, np.float32)[one.found.class_ids]
    for chosen, words in (
        ((overlaps >= one.iou) & ~same & over, "taken for {name}, score {score:.2f}"),
        ((overlaps >= one.iou) & same & ~over, "found with score {score:.2f}, threshold {threshold:.2f}"),
        ((overlaps >= one.iou) & same, "its box counts for another true box, score {score:.2f}"),
        ((overlaps >= NEAR) & same & over, "the box found overlaps it by {overlap:.2f} only, score {score:.2f}"),
    ):
        if chosen.any():
            best = int(np.flatnonzero(chosen)[0])  # the highest score, as boxes are best first
            name = one.names[int(one.found.class_ids[best])]
            score, threshold = float(one.found.scores[best]), one.thresholds[class_id]
            told = words.format(name=name, score=score, threshold=threshold, overlap=overlaps[best])
            return told, one.found.boxes_xyxy_px[best][None]
    return "nothing was found here", np.zeros((0, 4), np.float32)


def _alarms(number: int, one: Judged, right: npt.NDArray[np.int64], wrong: npt.NDArray[np.int64]) -> Iterator[Fault]:
    good = not len(one.true.class_ids)
    for index in np.flatnonzero(right < 0):
        box, class_id = one.over.boxes_xyxy_px[index], int(one.over.class_ids[index])
        score = float(one.over.scores[index])
        words, near = _at_the_alarm(one, box, int(wrong[index]))
        told = f"score {score:.2f}, threshold {one.thresholds[class_id]:.2f}; {words}"
        yield Fault(number, class_id, good, told, (float(not good), -score, float(number)), near, box[None])


def _at_the_alarm(one: Judged, box: Box, wrong: int) -> tuple[str, Box]:
    true = one.true
    if wrong >= 0:
        return f"{one.names[int(true.class_ids[wrong])]} is there", true.boxes_xyxy_px[wrong][None]
    overlaps = pairwise_iou(true.boxes_xyxy_px, box[None])[:, 0]
    if len(overlaps) and overlaps.max() >= NEAR:
        best = int(overlaps.argmax())
        name = one.names[int(true.class_ids[best])]
        kind = "a further box on" if overlaps[best] >= one.iou else f"overlaps by {overlaps[best]:.2f} only with"
        return f"{kind} {name}", true.boxes_xyxy_px[best][None]
    return ("on a good part" if not len(true.class_ids) else "no defect is there"), np.zeros((0, 4), np.float32)
