"""Simulated nights: what the gates decide about candidates whose true distance to the champion is known.

Made from the per-picture results of two models. Each picture is in the pool twice: once the candidate has the first
model's result and the champion the second's, once the other way round. Drawn evenly, both are equally good by
construction, yet differ from picture to picture as real models do. Drawn with a lean towards the pictures on which the
candidate's side is the better one, the candidate is better by as much as the lean says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.evaluation.bootstrap import RankedHits, Weights, average_precision, mean_of_known, rank_hits
from tasks.evaluation.comparison import lower_bound
from tasks.evaluation.picture_scores import PictureScores
from tasks.gating.champion_checks import Shown, better_check, not_worse_check
from tasks.gating.gate_policy import GatePolicy

STEPS = 40


@dataclass(frozen=True, eq=False)
class Pool:
    """Two models on the same pictures, each way round: 2 x pictures rows. `better`: where the candidate is ahead."""

    candidate: tuple[RankedHits, ...]
    champion: tuple[RankedHits, ...]
    better: npt.NDArray[np.bool_]

    @property
    def pictures(self) -> int:
        """How many different ones."""
        return len(self.better) // 2

    def differences(self, weights: Weights) -> npt.NDArray[np.float64]:
        """Candidate minus champion in mAP50, of each drawing."""
        return _mean(self.candidate, weights) - _mean(self.champion, weights)


@dataclass(frozen=True)
class Night:
    """What was decided in one night."""

    promoted: bool
    admitted: bool


def _mean(ranked: tuple[RankedHits, ...], weights: Weights) -> npt.NDArray[np.float64]:
    return mean_of_known(np.stack([average_precision(one, weights) for one in ranked], axis=1))


def make_pool(one: PictureScores, other: PictureScores) -> Pool:
    """From the results of two models on the same pictures."""
    ahead, behind = stack(one, other), stack(other, one)
    gain = worth(one) - worth(other)
    classes = range(one.instances.shape[1])
    return Pool(
        candidate=tuple(rank_hits(ahead, class_id, 0) for class_id in classes),
        champion=tuple(rank_hits(behind, class_id, 0) for class_id in classes),
        better=np.concatenate([gain >= 0, gain < 0]),
    )


def stack(one: PictureScores, other: PictureScores) -> PictureScores:
    """Both as if they were results on different pictures."""
    score = np.concatenate([one.score, other.score])
    order = np.argsort(-score, kind="stable")
    return PictureScores(
        names=np.concatenate([one.names, other.names]),
        instances=np.concatenate([one.instances, other.instances]),
        picture=np.concatenate([one.picture, other.picture + len(one.names)])[order].astype(np.int32),
        class_id=np.concatenate([one.class_id, other.class_id])[order],
        score=score[order],
        hits=np.concatenate([one.hits, other.hits])[order],
        true_class=np.concatenate([one.true_class, other.true_class]),
        true_found=np.concatenate([one.true_found, other.true_found]),
    )


def worth(scores: PictureScores) -> npt.NDArray[np.float64]:
    """How good the result on each picture is: scores of true boxes minus scores of false ones."""
    signed = np.where(scores.hits & 1, scores.score, -scores.score).astype(np.float64)
    return np.asarray(np.bincount(scores.picture, signed, minlength=len(scores.names)), np.float64)


def chances(pool: Pool, lean: float) -> npt.NDArray[np.float64]:
    """How likely each row is drawn: evenly at a lean of 0, the better ones only at 1."""
    weighed = np.where(pool.better, 1 + lean, 1 - lean)
    return np.asarray(weighed / weighed.sum())


def gain_of(pool: Pool, lean: float) -> float:
    """The true distance of candidate and champion at that lean."""
    return float(pool.differences((chances(pool, lean)[None] * len(pool.better)).astype(np.float32))[0])


def lean_for(pool: Pool, gain: float) -> float | None:
    """The lean at which the candidate is better by `gain`; None where even the best choice is not."""
    low, high = 0.0, 1.0
    if gain_of(pool, high) < gain:
        return None
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if gain_of(pool, middle) < gain else (low, middle)
    return high


def simulate(
    pool: Pool, lean: float, pictures: int, nights: int, policy: GatePolicy, rounds: int, seed: int
) -> Iterator[Night]:
    """Each night has its own test pictures; what the gates see is one draw of them and no more."""
    chance = np.random.default_rng(seed)
    likely = chances(pool, lean)
    for _ in range(nights):
        drawn = chance.multinomial(pictures, likely)
        weights = chance.multinomial(pictures, drawn / pictures, rounds)
        every = np.vstack([drawn[None], weights]).astype(np.float32)
        yield decide_night(pool.differences(every), pictures, policy)


def decide_night(differences: npt.NDArray[np.float64], pictures: int, policy: GatePolicy) -> Night:
    """The gates' own rules; the first difference is the measured one, the rest are the drawings."""

    def shown(level: float) -> Shown | None:
        lower = lower_bound(differences[1:], level)
        return None if lower is None else Shown(pictures, float(differences[0]), lower, level)

    admitted = not_worse_check("map50", shown(policy.admission_level), policy).holds
    return Night(promoted=admitted and better_check("map50", shown(policy.promotion_level)).holds, admitted=admitted)
