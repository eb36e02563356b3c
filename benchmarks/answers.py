"""Whether an answer belongs to the picture it was sent for: its boxes against those that were found in process."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

Boxes = npt.NDArray[np.float32]
"""float32 (n, 6): left, top, right, bottom in pixels of the picture, score, class id."""

BOX_PX = 8.0
"""A box may lie this far from the expected one; another precision or letterbox code moves it by less."""
ENOUGH = 0.5
"""Share of boxes that must be found again. Boxes at the threshold come and go; another picture shares next to none."""


def boxes_in(answer: bytes) -> Boxes:
    """The boxes of an answer: Passline's objects, or the peers' rows."""
    found = json.loads(answer)["detections"]
    rows = [_row(item) for item in found]
    return np.array(rows, np.float32).reshape(-1, 6)


def _row(item: Any) -> list[float]:
    if isinstance(item, dict):
        return [*item["box_xyxy_px"], item["score"], item["class_id"]]
    return list(item)


def check_answer(answer: bytes, expected: Boxes) -> bool:
    """Whether the answer lists the expected boxes, in any order."""
    try:
        found = boxes_in(answer)
    except (ValueError, KeyError, TypeError):
        return False
    return agreement(found, expected) >= ENOUGH and agreement(expected, found) >= ENOUGH


def agreement(found: Boxes, expected: Boxes) -> float:
    """Share of `expected` that has a box of the same class in `found`, all corners within BOX_PX; 1 for none.

    >>> one = np.array([[0, 0, 10, 10, 0.9, 1]], np.float32)
    >>> agreement(one + np.float32([2, 2, 2, 2, 0, 0]), one), agreement(one + np.float32([9, 9, 9, 9, 0, 0]), one)
    (1.0, 0.0)
    """
    if not len(expected):
        return 1.0
    if not len(found):
        return 0.0
    apart = np.abs(found[None, :, :4] - expected[:, None, :4]).max(axis=2)
    same = found[None, :, 5] == expected[:, None, 5]
    return float(((apart <= BOX_PX) & same).any(axis=1).mean())
