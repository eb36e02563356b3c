"""Warm an engine up for every batch size that it will be used with, and learn how long each takes."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np
import numpy.typing as npt

from serving.detector import Detector
from serving.latency import LatencyTable, measure_latencies

ALL_SIZES_UP_TO = 8


def warm_up(detector: Detector, max_batch: int) -> LatencyTable:
    """Time the engine by batch size, from one picture on, up to the first size that gains nothing."""
    sizes = [2**power for power in range(max_batch.bit_length()) if 2**power <= max_batch]
    return measure_latencies(detector.predict, lambda size: blank_batch(detector, size), {*sizes, max_batch})


def warm_between(detector: Detector, max_batch: int, warm: AbstractSet[int]) -> None:
    """One call for each size in use that was not measured, so that no request pays for an engine's first time."""
    for size in set(warm_sizes(max_batch)) - warm:
        detector.predict(blank_batch(detector, size))


def blank_batch(detector: Detector, size: int) -> npt.NDArray[np.float32]:
    """Black pictures: float32 (size, 3, input height, input width)."""
    width, height = detector.spec.input.wh
    return np.zeros((size, 3, height, width), np.float32)


def warm_sizes(max_batch: int) -> tuple[int, ...]:
    """Batch sizes to warm: all small ones, then powers of two and the largest.

    >>> warm_sizes(20)
    (1, 2, 3, 4, 5, 6, 7, 8, 16, 20)
    """
    sizes = set(range(1, min(max_batch, ALL_SIZES_UP_TO) + 1)) | {max_batch}
    power = ALL_SIZES_UP_TO
    while power < max_batch:
        sizes.add(power)
        power *= 2
    return tuple(sorted(sizes))
