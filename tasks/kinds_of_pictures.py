"""A few pictures of a split that show all it has: some without defects, and some of each class."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from tasks.ground_truth import GroundTruth


def choose_of_all_kinds(truth: Sequence[GroundTruth], count: int) -> tuple[GroundTruth, ...]:
    """Up to `count` pictures, taken in turn from those without defects and from those of each class.

    A picture of several classes stands for its rarest. Within a group the pictures are spread evenly over the split's
    order. The same split gives the same choice. Worked example: of 100 good pictures, 100 with class 0 and 2 with class
    1, nine are taken as 4 good, 3 with class 0 and 2 with class 1.
    """
    seen = Counter(class_id for one in truth for class_id in {int(class_id) for class_id in one.class_ids})
    groups: dict[int, list[GroundTruth]] = {}
    for one in truth:
        rarest = min((int(class_id) for class_id in one.class_ids), key=lambda class_id: seen[class_id], default=-1)
        groups.setdefault(rarest, []).append(one)
    sizes = _shares([len(groups[key]) for key in sorted(groups)], min(count, len(truth)))
    return tuple(one for key, size in zip(sorted(groups), sizes, strict=True) for one in _spread(groups[key], size))


def _shares(available: Sequence[int], count: int) -> list[int]:
    """How many of each group, handed out one by one in turn until `count` are given or all are taken."""
    given = [0] * len(available)
    turn = deque(range(len(available)))
    for _ in range(min(count, sum(available))):
        while given[turn[0]] == available[turn[0]]:
            turn.popleft()
        given[turn[0]] += 1
        turn.rotate(-1)
    return given


def _spread(group: Sequence[GroundTruth], size: int) -> list[GroundTruth]:
    return [group[number * len(group) // size] for number in range(size)]
