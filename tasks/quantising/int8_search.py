"""Which operators must stay in float beside the head: the most harmful first, until the gate holds.

The search knows neither files nor models: it is given how to make and judge a try, and how to measure the harm of a
section of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SECTIONS = 12
"""Runs of operators of equal length that are measured and left out as a whole."""

Section = tuple[str, ...]
Output = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Found:
    """How a search ended; without `objections` the last try may ship."""

    left_out: Section
    objections: tuple[str, ...]
    tries: int
    stopped: str = ""


def search(
    attempt: Callable[[Section], tuple[str, ...]],
    harm: Callable[[Section], float],
    sections: Sequence[Section],
    max_rounds: int,
    in_time: Callable[[], bool],
) -> Found:
    """Try without leaving anything out, then with the most harmful section in float, then with two, and so on.

    `attempt` gives what speaks against a model with these operators in float, `harm` what quantising this section
    alone changes. Sections are measured only when the first try fails; of equally harmful ones the earlier comes first.
    """
    found = Found((), attempt(()), 1)
    if not found.objections or max_rounds == 1:
        return found
    ranked: list[tuple[float, Section]] = []
    for section in sections:
        if not in_time():
            return _out_of_time(found)
        ranked.append((harm(section), section))
    ranked.sort(key=lambda one: -one[0])
    for count in range(1, min(max_rounds, len(sections))):
        if not in_time():
            return _out_of_time(found)
        left_out = tuple(name for _, section in ranked[:count] for name in section)
        found = Found(left_out, attempt(left_out), count + 1)
        if not found.objections:
            break
    return found


def _out_of_time(found: Found) -> Found:
    return Found(found.left_out, found.objections, found.tries, "the time for the search was up")


def output_change(reference: Output, other: Output, layout: str) -> float:
    """How much a model's output (n, ...) changes where FP32 sees something: anchors weigh by their best FP32 score.

    raw: change of the scores, the largest of a place, and of the box as a share of the largest coordinate. end_to_end:
    change of the scores, best first, for boxes of equal score have no order.
    """
    if layout == "end_to_end":
        weights, change = reference[:, :, 4], np.abs(reference[:, :, 4] - other[:, :, 4])
    else:
        weights = reference[:, 4:].max(axis=1)
        side = max(float(np.abs(reference[:, :4]).max()), 1.0)
        change = np.abs(reference[:, 4:] - other[:, 4:]).max(axis=1)
        change = change + np.abs(reference[:, :4] - other[:, :4]).mean(axis=1) / side
    return float((weights * change).sum() / max(float(weights.sum()), 1e-9))
