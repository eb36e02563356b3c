"""How far a number would move had other pictures been in the split: the pictures are drawn again, many times.

A drawing is a row of weights: how often each picture is in it. Average precision of a drawing is exactly what the
library would count over those pictures. It changes at true boxes only, so per class two small matrices are enough:
true boxes so far, and false ones so far, by picture, at the rank of each true box.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tasks.evaluation.evaluation_result import Interval
from tasks.evaluation.picture_scores import PictureScores

RECALLS = np.linspace(0.0, 1.0, 101)
"""The recalls of COCO. Its 0.7 is 0.7000000000000001: computed values decide, not written ones."""
CELLS = 4_000_000
LEAST_SHARE = 0.9
NORMAL = NormalDist()
Numbers = npt.NDArray[np.float64]
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class RankedHits:
    """One class at one overlap, float32: hits and misses (pictures, true boxes found), instances (pictures,).

    hits[p, j]: true boxes of picture p among the best j + 1; misses[p, j]: its false boxes ranked before that one.
    """

    hits: Weights
    misses: Weights
    instances: Weights


def draw_weights(pictures: int, rounds: int, seed: int) -> Weights:
    """Drawings with replacement, as many pictures as there are: float32 (rounds, pictures)."""
    chance = np.random.default_rng(seed)
    return chance.multinomial(pictures, np.full(pictures, 1 / pictures), rounds).astype(np.float32)


def rank_hits(scores: PictureScores, class_id: int, overlap: int) -> RankedHits:
    """The boxes of a class by rank; `overlap` is a position in OVERLAPS."""
    own = scores.class_id == class_id
    picture, is_true = scores.picture[own], (scores.hits[own] >> overlap & 1).astype(bool)
    pictures, count = len(scores.names), int(is_true.sum())
    hits, misses = np.zeros((pictures, count), np.float32), np.zeros((pictures, count), np.float32)
    hits[picture[is_true], np.arange(count)] = 1
    before = np.cumsum(is_true)[~is_true]
    counted = before < count
    np.add.at(misses, (picture[~is_true][counted], before[counted]), 1)
    instances = scores.instances[:, class_id].astype(np.float32)
    return RankedHits(hits.cumsum(axis=1), misses.cumsum(axis=1), instances)


def average_precision(ranked: RankedHits, weights: Weights) -> Numbers:
    """COCO's average precision of each drawing, (rounds,); NaN where it has no true box of the class."""
    step = max(1, CELLS // max(1, ranked.hits.shape[1]))
    parts = [_average_precision(ranked, weights[start : start + step]) for start in range(0, len(weights), step)]
    return np.concatenate(parts)


def _average_precision(ranked: RankedHits, weights: Weights) -> Numbers:
    true = (weights @ ranked.hits).astype(np.float64)
    false = weights @ ranked.misses
    instances = (weights @ ranked.instances).astype(np.float64)[:, None]
    precision = np.divide(true, true + false, out=np.zeros_like(true), where=true > 0)
    best_from_here = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    recall = np.divide(true, instances, out=np.zeros_like(true), where=instances > 0)
    reached = np.where(true > 0, np.searchsorted(RECALLS, recall, side="right"), 0)
    new = np.diff(reached, axis=1, prepend=0)
    found: Numbers = (new * best_from_here).sum(axis=1) / len(RECALLS)
    found[instances[:, 0] == 0] = np.nan
    return found


def class_precisions(scores: PictureScores, weights: Weights, overlaps: tuple[int, ...] = (0,)) -> Numbers:
    """Average precision by class of each drawing, mean over `overlaps`: (rounds, classes)."""
    classes = range(scores.instances.shape[1])
    columns = [
        np.mean([average_precision(rank_hits(scores, class_id, overlap), weights) for overlap in overlaps], axis=0)
        for class_id in classes
    ]
    return np.stack(columns, axis=1) if columns else np.zeros((len(weights), 0))


def mean_of_known(by_class: Numbers) -> Numbers:
    """Mean over the classes that have a number, (rounds,); NaN where none has."""
    known = ~np.isnan(by_class)
    total = np.where(known, by_class, 0.0).sum(axis=1)
    count = known.sum(axis=1)
    means: Numbers = np.divide(total, count, out=np.full(len(by_class), np.nan), where=count > 0)
    return means


def drawn_ratio(part: npt.ArrayLike, whole: npt.ArrayLike, weights: Weights) -> Numbers:
    """Sum of `part` over sum of `whole`, both (pictures,), of each drawing; NaN where there is no whole."""
    parts = (weights @ np.asarray(part, np.float32)).astype(np.float64)
    wholes = (weights @ np.asarray(whole, np.float32)).astype(np.float64)
    ratios: Numbers = np.divide(parts, wholes, out=np.full(len(weights), np.nan), where=wholes > 0)
    return ratios


def with_measured(weights: Weights) -> Weights:
    """The pictures as they are, each once, and then the drawings: what is counted over row 0 is the measured number."""
    return np.vstack([np.ones((1, weights.shape[1]), np.float32), weights])


def corrected_quantile(numbers: Numbers, share: float) -> float | None:
    """Below it lies the true number with a chance of `share`; `numbers` are the measured one and those of the drawings.

    Average precision of a drawing lies too high, as pictures are in it twice, and the measured one lies too high as
    against the true one for the same reason. So quantiles are moved by how lopsided the drawings lie about the measured
    number (Efron's bias correction). None where there is no measured number, or where more than a tenth lack theirs.
    """
    measured, drawn = numbers[0], numbers[1:]
    known = drawn[np.isfinite(drawn)]
    if not np.isfinite(measured) or not len(drawn) or len(known) < LEAST_SHARE * len(drawn):
        return None
    below = float((known < measured).mean() + (known == measured).mean() / 2)
    edge = 1 / (len(known) + 1)
    lopsided = NORMAL.inv_cdf(min(max(below, edge), 1 - edge))
    return float(np.quantile(known, NORMAL.cdf(2 * lopsided + NORMAL.inv_cdf(share))))


def interval(numbers: Numbers, confidence: float) -> Interval | None:
    """Where the true number lies with that confidence, as far as the drawings tell."""
    low = corrected_quantile(numbers, (1 - confidence) / 2)
    high = corrected_quantile(numbers, (1 + confidence) / 2)
    return None if low is None or high is None else Interval(low=low, high=high)
